// The messages of aborted calls say how long the call waited, and how to see the holder.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { LockAbortedError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { overStores } from '../support/stores.mjs'

const LOOK = 'inspect() shows who holds the lock, and who waits'

/** Aborts `controller` once the call has waited for some time, and checks the error of the call. */
async function assertSays(call, controller, key, began) {
  const reason = new Error('the caller gave up')
  await sleep(40)
  const least = performance.now() - began
  controller.abort(reason)
  await assert.rejects(call, (error) => {
    const most = performance.now() - began
    assert.ok(error instanceof LockAbortedError, String(error))
    assert.deepEqual(
      [error.name, error.code, error.cause, error.key],
      ['LockAbortedError', 'ERR_LOCK_ABORTED', reason, key],
    )
    const [, ms, rest] = /^waiting for ".*" was aborted after (\d+) ms: (.*)$/.exec(error.message) ?? []
    assert.equal(rest, LOOK, error.message)
    // The message has no fractions, and the call began a moment after `began`.
    assert.ok(Number(ms) >= least - 5 && Number(ms) <= most + 1, `${least} to ${most}: ${error.message}`)
    return true
  })
}

overStores('messages of aborted calls', (store) => {
  test('a call that waits in line', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    await locks.acquire(key)
    const controller = new AbortController()
    const began = performance.now()
    const call = locks.acquire(key, { wait: Infinity, signal: controller.signal })
    await assertSays(call, controller, key, began)
  })

  test('a call that retries counts all its tries', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    await other.acquire(key)
    const controller = new AbortController()
    const began = performance.now()
    const retry = { retries: Infinity, minDelay: 20, maxDelay: 20, jitter: false }
    const call = locks.acquire(key, { retry, signal: controller.signal })
    await until('three tries', () => locks.stats().contended >= 3)
    await assertSays(call, controller, key, began)
  })

  test('a call for several keys counts the wait for all of them', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const [first, second] = [store.key(), store.key()].sort()
    const lease = await other.acquire(first)
    await other.acquire(second)
    const controller = new AbortController()
    const began = performance.now()
    const call = locks.acquire([first, second], { wait: Infinity, signal: controller.signal })
    await sleep(60)
    await lease.release()
    await until('the first key', async () => (await other.inspect(first)) !== null)
    await assertSays(call, controller, second, began)
  })

  test('a signal that was aborted before the call', async (t) => {
    const locks = store.client(t)
    const [key, another] = [store.key(), store.key()].sort()
    const signal = AbortSignal.abort()
    const message = `could not acquire "${key}": the signal was aborted before the call`
    for (const call of [
      () => locks.acquire(key, { signal }),
      () => locks.tryAcquire(key, { signal }),
      () => locks.acquire(key, { signal, retry: true }),
      () => locks.acquire([key, another], { signal }),
    ]) {
      await assert.rejects(call, { name: 'LockAbortedError', message, key })
    }
  })
})
