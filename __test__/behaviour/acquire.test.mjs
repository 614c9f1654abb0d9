// Tests acquire(), tryAcquire() and release() on every store.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LockTimeoutError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { allStoreNames, overStores } from '../support/stores.mjs'

overStores(
  'acquire',
  (store) => {
    test('a free lock is granted, and the lease has all its properties', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const lease = await locks.acquire(key, { ttl: 5_000 })
      assert.equal(lease.key, key)
      assert.equal(lease.ttl, 5_000)
      assert.equal(lease.isHeld, true)
      assert.ok(lease.remaining > 1_000 && lease.remaining <= 5_000, `${lease.remaining}`)
      assert.ok(Number.isSafeInteger(lease.fence) && lease.fence > 0, `${lease.fence}`)
      assert.match(lease.token, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
      assert.ok(lease.signal instanceof AbortSignal)
      assert.equal(lease.signal.aborted, false)
      lease.assertHeld()
      assert.equal(await lease.release(), true)
    })

    test('the ttl of the client is the default of its leases', async (t) => {
      const lease = await store.client(t, { ttl: 4_321 }).acquire(store.key())
      assert.equal(lease.ttl, 4_321)
      assert.equal((await store.client(t).acquire(store.key())).ttl, 10_000)
    })

    test('a held lock is granted to no other caller, in this client or another', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const lease = await a.acquire(key)
      assert.equal(await a.tryAcquire(key), null)
      assert.equal(await b.tryAcquire(key), null)
      await assert.rejects(b.acquire(key, { wait: 0 }), LockTimeoutError)
      assert.equal(lease.isHeld, true)
      await lease.release()
      const next = await b.tryAcquire(key)
      assert.equal(next.isHeld, true)
      assert.equal(await a.tryAcquire(key), null)
      assert.equal(lease.isHeld, false)
    })

    test('fences of a key only grow, across clients', async (t) => {
      const clients = [store.client(t), store.client(t)]
      const key = store.key()
      let last = 0
      for (let i = 0; i < 60; i++) {
        const lease = await clients[i % 2].acquire(key)
        assert.ok(lease.fence > last, `${lease.fence} after ${last}`)
        last = lease.fence
        await lease.release()
      }
    })

    test('tokens are never the same', async (t) => {
      const locks = store.client(t)
      const leases = await Promise.all(Array.from({ length: 200 }, () => locks.acquire(store.key())))
      assert.equal(new Set(leases.map((lease) => lease.token)).size, 200)
    })

    test('a thousand keys are held at once and released at once', async (t) => {
      const locks = store.client(t)
      const keys = Array.from({ length: 1_000 }, () => store.key())
      const leases = await Promise.all(keys.map((key) => locks.acquire(key, { ttl: 30_000, wait: 30_000 })))
      assert.ok(leases.every((lease, i) => lease.isHeld && lease.key === keys[i]))
      assert.deepEqual(new Set(await Promise.all(leases.map((lease) => lease.release()))), new Set([true]))
      const again = await Promise.all(keys.map((key) => locks.tryAcquire(key)))
      assert.ok(again.every((lease) => lease?.isHeld))
    })

    test('a hundred contenders in one process hold the lock one at a time, and each gets it in its turn', async (t) => {
      const clients = [store.client(t), store.client(t)]
      const key = store.key()
      const fences = []
      let inside = 0
      const contend = async (_, i) => {
        const lease = await clients[i % 2].acquire(key, { ttl: 30_000, wait: 100_000 })
        assert.equal(inside, 0)
        inside++
        fences.push(lease.fence)
        await new Promise(setImmediate)
        assert.equal(lease.isHeld, true)
        inside--
        assert.equal(await lease.release(), true)
      }
      await Promise.all(Array.from({ length: 100 }, contend))
      assert.equal(fences.length, 100)
      assert.deepEqual(
        fences,
        [...fences].sort((a, b) => a - b),
      )
      assert.equal(new Set(fences).size, 100)
    })

    test('a lease that is renewed is held for many ttls', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const lease = await a.acquire(key, { ttl: 400 })
      const end = performance.now() + 1_600
      await until(
        'time to pass',
        async () => {
          assert.equal(lease.isHeld, true)
          assert.equal(await b.tryAcquire(key), null)
          return performance.now() > end
        },
        20_000,
        50,
      )
      assert.equal(await lease.release(), true)
    })

    test('the same key is another lock under another prefix', async (t) => {
      const [a, b, plain] = [store.client(t, { prefix: 'a:' }), store.client(t, { prefix: 'b:' }), store.client(t)]
      const key = store.key()
      const leases = await Promise.all([a, b, plain].map((locks) => locks.tryAcquire(key)))
      assert.ok(leases.every((lease) => lease?.isHeld && lease.key === key))
      assert.equal(await store.client(t, { prefix: 'lock:' }).tryAcquire(key), null, 'lock: is the default')
    })
  },
  allStoreNames,
)
