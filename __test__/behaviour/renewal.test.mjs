// Renewal, loss and end of a lease, on every store.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LockError } from 'leasehold'
import { now, timed, until } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/** The largest delay of an event on a busy machine, in ms. */
const SLACK = 2_000

const released = (error) => {
  assert.equal(error.constructor, LockError)
  assert.equal(error.code, 'ERR_LOCK_RELEASED')
  return true
}

overStores('renewal and loss', (store) => {
  test('a lease with autoRenew: false expires at its ttl, and its signal aborts', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const before = now()
    const lease = await a.acquire(key, { ttl: 300, autoRenew: false })
    assert.equal(lease.isHeld, true)
    await aborted(lease)
    const ms = now() - before
    assert.ok(ms > 250 && ms < 300 + SLACK, `${ms} ms`)
    assert.equal(lease.isHeld, false)
    assert.equal(lease.remaining, 0)
    assert.equal(lease.signal.aborted, true)
    assert.ok(lost('expired')(lease.signal.reason))
    assert.throws(() => lease.assertHeld(), lost('expired'))
    await assert.rejects(lease.renew(), lost('expired'))
    assert.equal(await lease.release(), false)
    assert.equal((await b.acquire(key, { wait: 5_000 })).isHeld, true)
  })

  test('isHeld is never true while another client holds the lock', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    for (const ttl of [80, 120, 200]) {
      const key = store.key()
      const lease = await a.acquire(key, { ttl, autoRenew: false })
      await until(
        'the lease to expire',
        async () => {
          const next = await b.tryAcquire(key)
          if (next) assert.equal(lease.isHeld, false)
          return next
        },
        20_000,
        0,
      )
    }
  })

  test('remaining decreases, and a renewal increases it', async (t) => {
    const lease = await store.client(t).acquire(store.key(), { ttl: 3_000, autoRenew: false })
    const before = lease.remaining
    await until('remaining to fall', () => lease.remaining < before - 100)
    const low = lease.remaining
    await lease.renew()
    assert.ok(lease.remaining > low, `${lease.remaining} after ${low}`)
    assert.ok(lease.remaining <= 3_000)
    assert.equal(lease.isHeld, true)
  })

  test('renew(ttl) sets another ttl, and never makes the lease end earlier', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key, { ttl: 1_000, autoRenew: false })
    await lease.renew(60_000)
    assert.ok(lease.remaining > 30_000, `${lease.remaining}`)
    await lease.renew(200)
    assert.equal(lease.ttl, 200)
    assert.ok(lease.remaining > 30_000, `${lease.remaining}`)
    assert.equal(await b.tryAcquire(key), null)
    await lease.release()

    const short = await a.acquire(key, { ttl: 100, autoRenew: false })
    await short.renew(300)
    const { ms } = await timed(() => b.acquire(key, { wait: 20_000 }))
    assert.equal(short.isHeld, false)
    assert.ok(ms > 200 && ms < 300 + SLACK, `the store does not have the longer ttl: ${ms} ms`)
  })

  test('every promise of many concurrent renewals settles', async (t) => {
    const lease = await store.client(t).acquire(store.key())
    await Promise.all(Array.from({ length: 20 }, () => lease.renew()))
    assert.equal(lease.isHeld, true)
    const last = lease.renew()
    assert.equal(await lease.release(), true)
    await last.catch((error) => assert.ok(error instanceof LockError, String(error)))
    await assert.rejects(lease.renew(), LockError)
  })

  test('a second release() returns the promise of the first', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key())
    const first = lease.release()
    assert.equal(lease.isHeld, false, 'a lease is not held from the call of release() on')
    assert.equal(lease.remaining, 0)
    assert.equal(lease.release(), first)
    assert.equal(await first, true)
    assert.equal(await lease.release(), true)
    assert.equal(lease.signal.aborted, false, 'a release is not a loss')
    assert.throws(() => lease.assertHeld(), released)
    await assert.rejects(lease.renew(), released)
  })

  test('a late release does not touch the next holder', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const old = await a.acquire(key, { ttl: 200, autoRenew: false })
    const next = await b.acquire(key, { wait: 10_000 })
    assert.equal(await old.release(), false)
    assert.equal(next.isHeld, true)
    assert.equal(await a.tryAcquire(key), null)
    assert.equal(await next.release(), true)
  })

  test('maxHold ends a lease that is renewed, and frees the lock', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const before = now()
    const lease = await a.acquire(key, { ttl: 600, maxHold: 1_200 })
    await aborted(lease)
    const ms = now() - before
    assert.ok(ms >= 1_150 && ms < 1_200 + SLACK, `${ms} ms`)
    assert.equal(lease.isHeld, false)
    lost('expired')(lease.signal.reason)
    assert.match(lease.signal.reason.message, /its maxHold of 1200 ms/)
    assert.equal((await b.acquire(key, { wait: 5_000 })).isHeld, true)
  })

  test('renew() does not keep a lease beyond its maxHold, neither here nor at the store', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key, { ttl: 600, maxHold: 1_200 })
    await lease.renew(600_000)
    assert.equal(lease.ttl, 600_000)
    assert.ok(lease.remaining <= 1_200, `${lease.remaining} ms`)
    await aborted(lease)
    assert.equal((await b.acquire(key, { wait: 5_000 })).isHeld, true)
  })

  test('disposal releases a lease, and may follow a release or a loss', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const lease = await locks.acquire(key)
    await lease[Symbol.asyncDispose]()
    assert.equal(lease.isHeld, false)
    const next = await locks.tryAcquire(key)
    await next.release()
    await next[Symbol.asyncDispose]()
    const expired = await locks.acquire(key, { ttl: 200, autoRenew: false })
    await aborted(expired)
    await expired[Symbol.asyncDispose]()
  })

  test('a loss without a listener causes no error', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    await locks.acquire(key, { ttl: 200, autoRenew: false })
    // An unhandled rejection or a throwing 'error' event would fail this test.
    assert.ok(await locks.acquire(key, { wait: 10_000 }))
  })
})
