// Semaphores and read/write locks, on every store: which callers hold them together, which callers
// wait, and in which order.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { LockAbortedError, LockTimeoutError } from 'leasehold'
import { timed, until, within } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/** The largest delay of an event on a busy machine, in ms. */
const SLACK = 2_000

overStores('semaphore', (store) => {
  test('clients together hold as many leases as there are permits, and no more', async (t) => {
    const key = store.key()
    const semaphores = [store.client(t), store.client(t)].map((locks) => locks.semaphore(key, 3))
    const [a, b] = semaphores
    assert.deepEqual([a.key, a.permits], [key, 3])
    const leases = [await a.acquire(), await b.acquire({ ttl: 5_000 }), await a.tryAcquire()]
    assert.ok(leases.every((lease) => lease.isHeld && lease.key === key))
    assert.equal(new Set(leases.map(({ token }) => token)).size, 3)
    const fences = leases.map(({ fence }) => fence)
    assert.deepEqual(
      fences,
      [...new Set(fences)].sort((x, y) => x - y),
    )
    assert.equal(leases[1].ttl, 5_000)
    assert.equal(await b.tryAcquire(), null)
    await assert.rejects(a.acquire({ wait: 30 }), LockTimeoutError)
    assert.equal(await leases[1].release(), true)
    const next = await b.tryAcquire()
    assert.equal(next.isHeld, true)
    assert.equal(await a.tryAcquire(), null)
    assert.ok(leases[0].isHeld && leases[2].isHeld, 'a release ends one lease')
  })

  test('there are never more holders than permits, however many callers contend, and all permits are used', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    let inside = 0
    let most = 0
    const fences = new Set()
    const contend = (_, i) =>
      clients[i % 3].semaphore(key, 4).withLock({ wait: 60_000, ttl: 30_000 }, async (lease) => {
        inside++
        most = Math.max(most, inside)
        assert.ok(inside <= 4, `${inside} inside`)
        fences.add(lease.fence)
        await new Promise((resolve) => setTimeout(resolve, 2))
        inside--
      })
    await Promise.all(Array.from({ length: 60 }, contend))
    assert.equal(fences.size, 60)
    assert.equal(most, 4)
  })

  test('waiters are served in arrival order', async (t) => {
    const locks = store.client(t)
    const semaphore = locks.semaphore(store.key(), 1)
    const first = await semaphore.acquire()
    const order = []
    const waiters = Array.from({ length: 10 }, async (_, i) => {
      const lease = await semaphore.acquire({ wait: 60_000 })
      order.push(i)
      await lease.release()
    })
    await first.release()
    await Promise.all(waiters)
    assert.deepEqual(order, [...order.keys()])
  })

  test('a lease can expire, be renewed and be aborted like any other', async (t) => {
    const semaphore = store.client(t).semaphore(store.key(), 1)
    const lease = await semaphore.acquire({ ttl: 200, autoRenew: false })
    await aborted(lease)
    lost('expired')(lease.signal.reason)
    const next = await semaphore.acquire({ ttl: 300 })
    await next.renew(20_000)
    assert.ok(next.remaining > 10_000)
    await assert.rejects(semaphore.acquire({ signal: AbortSignal.timeout(50), wait: Infinity }), LockAbortedError)
    assert.equal(await next.release(), true)
  })

  test('the next waiter gets a permit that expired', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await a.semaphore(key, 2).acquire({ ttl: 60_000 })
    await a.semaphore(key, 2).acquire({ ttl: 400, autoRenew: false })
    const { ms, value } = await timed(() => b.semaphore(key, 2).acquire({ wait: 20_000 }))
    assert.equal(value.isHeld, true)
    assert.ok(ms < 400 + SLACK, `${ms} ms`)
  })

  test('a semaphore is the lock of its key, so an exclusive lease excludes it', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const semaphore = locks.semaphore(key, 5)
    const exclusive = await locks.acquire(key)
    assert.equal(await semaphore.tryAcquire(), null)
    await exclusive.release()
    const lease = await semaphore.acquire()
    assert.equal(await locks.tryAcquire(key), null)
    await lease.release()
  })

  test('inspect() returns all holders', async (t) => {
    const [a, b] = [store.client(t, { name: 'a' }), store.client(t, { name: 'b' })]
    const key = store.key()
    const leases = [await a.semaphore(key, 2).acquire({ ttl: 20_000 }), await b.semaphore(key, 2).acquire()]
    const info = await b.inspect(key)
    assert.equal(info.shared, true)
    assert.deepEqual(
      info.leases.map(({ holder, fence }) => [holder, fence]),
      [
        ['a', leases[0].fence],
        ['b', leases[1].fence],
      ],
    )
    assert.deepEqual([info.holder, info.fence, info.remaining], ['a', leases[0].fence, info.leases[0].remaining])
    assert.ok(info.remaining > 10_000 && info.remaining <= 20_000, `${info.remaining}`)
    for (const lease of leases) {
      assert.ok(!JSON.stringify(info).includes(lease.token))
      await lease.release()
    }
    assert.equal(await a.inspect(key), null)
  })

  test('util.inspect() shows the kind, the key and the permits', async (t) => {
    const locks = store.client(t)
    assert.equal(inspect(locks.semaphore('k', 3)), "Semaphore { key: 'k', permits: 3 }")
    assert.match(inspect(locks.readWriteLock('k')), /^ReadWriteLock \{/)
  })
})

overStores('read/write lock', (store) => {
  test('readers of several clients hold the lock together, and no writer does meanwhile', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const locks = [a.readWriteLock(key), b.readWriteLock(key)]
    assert.equal(locks[0].key, key)
    assert.equal(locks[0].read.key, key)
    const readers = await Promise.all(Array.from({ length: 20 }, (_, i) => locks[i % 2].read.acquire()))
    assert.ok(readers.every((lease) => lease.isHeld))
    for (const lock of locks) assert.equal(await lock.write.tryAcquire(), null)
    assert.equal((await a.inspect(key)).leases.length, 20)
    await Promise.all(readers.map((lease) => lease.release()))
    const writer = await locks[1].write.tryAcquire()
    assert.equal(writer.isHeld, true)
    assert.ok(readers.every(({ fence }) => fence < writer.fence))
    assert.equal(await locks[0].read.tryAcquire(), null)
    assert.equal(await locks[0].write.tryAcquire(), null)
  })

  test('a write lease is an exclusive lease of the key', async (t) => {
    const locks = store.client(t)
    const lock = locks.readWriteLock(store.key())
    const lease = await locks.acquire(lock.key)
    assert.equal(await lock.write.tryAcquire(), null)
    assert.equal(await lock.read.tryAcquire(), null)
    await lease.release()
    await lock.write.withLock(async () => assert.equal(await locks.tryAcquire(lock.key), null))
  })

  test('a waiting writer gets the lock before readers that asked later', async (t) => {
    const [a, b, c] = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    const order = []
    const first = await a.readWriteLock(key).read.acquire()
    const hold = async (lock, name) => {
      const lease = await lock.acquire({ wait: 20_000 })
      order.push(name)
      await lease.release()
    }
    const writer = hold(b.readWriteLock(key).write, 'writer')
    await until('the writer to wait', async () => (await a.inspect(key)).waiters.length === 1)
    assert.equal(await c.readWriteLock(key).read.tryAcquire(), null, 'no reader overtakes the writer')
    const readers = [hold(c.readWriteLock(key).read, 'reader'), hold(a.readWriteLock(key).read, 'reader')]
    await until('the readers to wait', async () => (await a.inspect(key)).waiters.length >= 2)
    assert.deepEqual(order, [])
    await first.release()
    await within('all turns', Promise.all([writer, ...readers]))
    assert.deepEqual(order, ['writer', 'reader', 'reader'])
  })

  test('readers that wait behind a writer get the lock together', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const writer = await a.readWriteLock(key).write.acquire()
    const readers = Array.from({ length: 6 }, (_, i) => [a, b][i % 2].readWriteLock(key).read.acquire({ wait: 20_000 }))
    await until('them to wait', () => a.stats().waiting + b.stats().waiting === 6)
    await writer.release()
    const leases = await within('all of them', Promise.all(readers))
    assert.ok(leases.every((lease) => lease.isHeld))
  })

  test('readers never see a half-done write', async (t) => {
    const clients = [store.client(t), store.client(t)]
    const key = store.key()
    const value = { left: 0, right: 0 }
    const pause = () => new Promise((resolve) => setTimeout(resolve, 1))
    const act = (_, i) => {
      const lock = clients[i % 2].readWriteLock(key)
      if (i % 3) return lock.read.withLock({ wait: 60_000 }, () => assert.equal(value.left, value.right))
      return lock.write.withLock({ wait: 60_000 }, async () => {
        value.left++
        await pause()
        value.right++
      })
    }
    await Promise.all(Array.from({ length: 60 }, act))
    assert.deepEqual(value, { left: 20, right: 20 })
  })
})
