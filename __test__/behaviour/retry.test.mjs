// acquire() with `retry`, which polls instead of queueing, on every store: how often, how long, and
// how it ends.

import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'
import { createLockClient, LockAbortedError, LockClosedError, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { overStores } from '../support/stores.mjs'

/** The largest delay of an event on a busy machine, in ms. */
const SLACK = 2_000

/** Returns how many tries of `locks` have failed. */
const tries = (locks) => locks.stats().contended

overStores('retry', (store) => {
  test('a free lock is granted at the first try', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key(), { retry: true, ttl: 5_000 })
    assert.equal(lease.isHeld, true)
    assert.equal(lease.ttl, 5_000)
    assert.equal(tries(locks), 0)
  })

  test('acquire tries a held lock again until it is free', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key)
    const second = b.acquire(key, { retry: { retries: Infinity, minDelay: 5, maxDelay: 20 } })
    await until('some tries', () => tries(b) >= 3)
    const info = await a.inspect(key)
    assert.deepEqual(info.waiters, [], 'the caller has no place in the queue')
    await lease.release()
    assert.equal((await within('the lease', second)).isHeld, true)
  })

  test('acquire rejects with LockTimeoutError after its retries and pauses, even with wait: 0 of the client', async (t) => {
    const [a, b] = [store.client(t), store.client(t, { wait: 0 })]
    const key = store.key()
    await a.acquire(key)
    const retry = { retries: 4, minDelay: 20, factor: 2, maxDelay: 50, jitter: false }
    const { ms, error } = await timed(() => b.acquire(key, { retry }))
    assert.ok(error instanceof LockTimeoutError, String(error))
    assert.equal(error.key, key)
    assert.match(error.message, /5 tries/)
    assert.equal(tries(b), 5)
    // The pauses are 20 + 40 + 50 + 50 ms. A timer of Node may be early by 1 ms.
    assert.ok(ms >= 156 && ms < 160 + SLACK, `${ms} ms`)
  })

  test('jitter changes a pause by up to that fraction', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await a.acquire(key)
    const spans = []
    for (let i = 0; i < 12; i++) {
      const { ms } = await timed(() =>
        assert.rejects(b.acquire(key, { retry: { retries: 1, minDelay: 40, jitter: 0.5 } })),
      )
      spans.push(ms)
    }
    assert.ok(
      spans.every((ms) => ms >= 19),
      String(spans),
    )
    assert.ok(Math.max(...spans) - Math.min(...spans) > 3, String(spans))
  })

  test('with retries: 0, acquire tries once', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await a.acquire(key)
    await assert.rejects(b.acquire(key, { retry: { retries: 0 } }), LockTimeoutError)
    assert.equal(tries(b), 1)
  })

  test('a wait also limits the retries, and ends with a last try', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await a.acquire(key)
    const { ms, error } = await timed(() => b.acquire(key, { wait: 150, retry: { minDelay: 100, jitter: false } }))
    assert.ok(error instanceof LockTimeoutError, String(error))
    assert.ok(ms >= 148 && ms < 150 + SLACK, `${ms} ms`)
    // If the second try is late, it is the last one.
    assert.ok(tries(b) >= 2, `${tries(b)} tries: at 0, 100 and 150 ms`)
  })

  test('an abort ends a pause at once', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key)
    const controller = new AbortController()
    const trying = b.acquire(key, { signal: controller.signal, retry: { minDelay: 60_000, maxDelay: 60_000 } })
    await until('the first try', () => tries(b) === 1)
    await sleep(20)
    const reason = new Error('the caller gave up')
    controller.abort(reason)
    const { ms, error } = await timed(() => trying)
    assert.ok(error instanceof LockAbortedError, String(error))
    assert.equal(error.cause, reason)
    assert.ok(ms < SLACK, `${ms} ms`)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    await lease.release()
    assert.ok(await a.tryAcquire(key), 'the aborted call has stopped trying')
  })

  test('close() ends a pause at once', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    await a.acquire(key)
    const trying = b.acquire(key, { retry: { minDelay: 60_000, maxDelay: 60_000 } })
    await until('the first try', () => tries(b) === 1)
    await sleep(20)
    const rejected = assert.rejects(trying, LockClosedError)
    await b.close()
    await within('the rejection', rejected, SLACK)
  })

  test('a retry of several keys tries all of them', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = [store.key(), store.key()].sort()
    const second = await a.acquire(keys[1])
    const retry = { retries: Infinity, minDelay: 30, maxDelay: 30 }
    const trying = b.acquire(keys, { retry })
    await until('some tries', () => tries(b) >= 2)
    await until('the first to be free between two tries', () => a.tryAcquire(keys[0]).then((lease) => lease?.release()))
    await second.release()
    assert.deepEqual((await within('the leases', trying)).keys, keys)
  })

  test('withLock and semaphores also have retry', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const retry = { retries: 1, minDelay: 5 }
    assert.equal(await locks.withLock(key, { retry }, (lease) => lease.key), key)
    const semaphore = locks.semaphore(key, 1)
    await semaphore.acquire()
    await assert.rejects(semaphore.acquire({ retry }), LockTimeoutError)
  })
})

overStores('retry at an unreachable store', () => {
  test('acquire rejects with the error of the store after its retries', async (t) => {
    const locks = createLockClient(`redis://127.0.0.1:${await freePort()}`)
    atEnd(t, () => locks.close())
    const { ms, error } = await timed(() => locks.acquire('k', { retry: { retries: 2, minDelay: 30, jitter: false } }))
    assert.ok(error instanceof StoreUnavailableError, String(error))
    assert.equal(error.reason, 'unreachable')
    assert.ok(ms >= 88, `${ms} ms`)
  })
}, ['memory'])
