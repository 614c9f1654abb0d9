// The wait for a held lock, on every store: its length, its order, and its end.

import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { test } from 'node:test'
import { LockAbortedError, LockError, LockTimeoutError } from 'leasehold'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { allStoreNames, overStores } from '../support/stores.mjs'

/** The largest delay of an event on a busy machine, in ms. */
const SLACK = 2_000

overStores(
  'waiting',
  (store) => {
    test('a waiter does not get the place of an earlier waiter that gave up', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const lease = await a.acquire(key)
      await assert.rejects(a.acquire(key, { wait: 50 }), LockTimeoutError)
      const order = []
      const second = b.acquire(key, { wait: 20_000 }).then((lease) => order.push('b') && lease.release())
      await until('b to wait', async () => (await a.inspect(key)).waiters.length === 1)
      const third = a.acquire(key, { wait: 20_000 }).then((lease) => order.push('a') && lease.release())
      await until('a to wait', async () => (await a.inspect(key)).waiters.length === 2)
      await lease.release()
      await Promise.all([second, third])
      assert.deepEqual(order, ['b', 'a'])
    })

    test('acquire waits for the release of the lock', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const first = await a.acquire(key)
      let released = false
      const second = b.acquire(key, { wait: 20_000 }).then((lease) => {
        assert.equal(released, true)
        return lease
      })
      await sleep(100)
      released = true
      await first.release()
      assert.equal((await second).isHeld, true)
    })

    test('acquire gets a lock soon after it expires', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const first = await a.acquire(key, { ttl: 500, autoRenew: false })
      const { ms, value } = await timed(() => b.acquire(key, { wait: 20_000 }))
      assert.equal(first.isHeld, false, 'the holder knew before the store granted the lock')
      assert.equal(value.isHeld, true)
      assert.ok(value.fence > first.fence)
      assert.ok(ms < 500 + SLACK, `${ms} ms`)
    })

    test('acquire rejects with LockTimeoutError when its wait is over, not before and not much later', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      const lease = await a.acquire(key)
      const { ms, error } = await timed(() => b.acquire(key, { wait: 300 }))
      assert.ok(error instanceof LockTimeoutError && error instanceof LockError && error instanceof Error)
      assert.equal(error.code, 'ERR_LOCK_TIMEOUT')
      assert.equal(error.name, 'LockTimeoutError')
      assert.ok(error.message.includes(key), error.message)
      assert.ok(ms >= 299 && ms < 300 + SLACK, `${ms} ms`)
      assert.equal(lease.isHeld, true)
    })

    test('wait: 0 tries once', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const lease = await locks.acquire(key, { wait: 0 })
      const { ms, error } = await timed(() => locks.acquire(key, { wait: 0 }))
      assert.ok(error instanceof LockTimeoutError)
      assert.ok(ms < SLACK, `${ms} ms`)
      await lease.release()
    })

    test('the wait of the client is the default, and wait: Infinity outlasts it', async (t) => {
      const locks = store.client(t, { wait: 150 })
      const key = store.key()
      const lease = await locks.acquire(key)
      const endless = locks.acquire(key, { wait: Infinity })
      const { error, ms } = await timed(() => locks.acquire(key))
      assert.ok(error instanceof LockTimeoutError)
      assert.ok(ms >= 149 && ms < 150 + SLACK, `${ms} ms`)
      await lease.release()
      assert.equal((await within('the endless wait', endless)).isHeld, true)
    })

    test('waiters of one process are served in arrival order', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const first = await locks.acquire(key)
      const order = []
      const waiters = Array.from({ length: 20 }, async (_, i) => {
        const lease = await locks.acquire(key, { wait: 60_000 })
        order.push(i)
        await lease.release()
      })
      await first.release()
      await Promise.all(waiters)
      assert.deepEqual(order, [...order.keys()])
    })

    test('a waiter that gives up does not delay the waiters behind it', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const first = await locks.acquire(key)
      const short = locks.acquire(key, { wait: 50 })
      const long = locks.acquire(key, { wait: 20_000 })
      await assert.rejects(short, LockTimeoutError)
      await first.release()
      assert.equal((await long).isHeld, true)
    })

    test('a call with an aborted signal rejects, and acquires nothing', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const cause = new Error('the caller gave up')
      const attempts = [
        locks.acquire(key, { signal: AbortSignal.abort(cause) }),
        locks.tryAcquire(key, { signal: AbortSignal.abort(cause) }),
      ]
      for (const attempt of attempts) {
        await assert.rejects(attempt, (error) => {
          assert.ok(error instanceof LockAbortedError && error instanceof LockError)
          assert.equal(error.code, 'ERR_LOCK_ABORTED')
          assert.equal(error.cause, cause)
          return true
        })
      }
      assert.ok(await locks.tryAcquire(key))
    })

    test('an abort ends the wait at once, and leaves no lock behind', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      const lease = await locks.acquire(key)
      const controller = new AbortController()
      const waiting = locks.acquire(key, { wait: Infinity, signal: controller.signal })
      await sleep(30)
      const { ms, error } = await timed(() => {
        controller.abort()
        return waiting
      })
      assert.ok(error instanceof LockAbortedError)
      assert.ok(ms < SLACK, `${ms} ms`)
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
      await lease.release()
      const next = await locks.tryAcquire(key)
      assert.ok(next, 'the aborted waiter must not get the lock')
    })

    test('an abort right after the call releases a lock that may have been granted', async (t) => {
      const locks = store.client(t)
      for (let i = 0; i < 50; i++) {
        const key = store.key()
        const controller = new AbortController()
        const acquiring = locks.acquire(key, { ttl: 60_000, signal: controller.signal })
        if (i % 2) await new Promise(setImmediate)
        controller.abort()
        const outcome = await acquiring.catch((error) => error)
        if (outcome instanceof Error) assert.ok(outcome instanceof LockAbortedError, String(outcome))
        else await outcome.release()
        assert.ok(await locks.acquire(key, { wait: 5_000 }), 'the lock is free before its ttl')
      }
    })

    test('an abort after the grant does nothing', async (t) => {
      const locks = store.client(t)
      const controller = new AbortController()
      const lease = await locks.acquire(store.key(), { signal: controller.signal })
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
      controller.abort()
      await new Promise(setImmediate)
      assert.equal(lease.isHeld, true)
      assert.equal(lease.signal.aborted, false)
      assert.equal(await lease.release(), true)
    })

    test('AbortSignal.timeout() can limit the wait', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      await locks.acquire(key)
      const { error, ms } = await timed(() => locks.acquire(key, { wait: Infinity, signal: AbortSignal.timeout(100) }))
      assert.ok(error instanceof LockAbortedError)
      assert.equal(error.cause.name, 'TimeoutError')
      assert.ok(ms < 100 + SLACK, `${ms} ms`)
    })

    test('the client does not change onabort of the signal', async (t) => {
      const locks = store.client(t)
      const controller = new AbortController()
      const onabort = () => {}
      controller.signal.onabort = onabort
      const lease = await locks.acquire(store.key(), { signal: controller.signal })
      assert.equal(controller.signal.onabort, onabort)
      await lease.release()
    })

    test('contenders of two clients do not starve', async (t) => {
      const [a, b] = [store.client(t), store.client(t)]
      const key = store.key()
      let turns = 0
      const contend = async (locks) => {
        for (let i = 0; i < 5; i++) {
          const lease = await locks.acquire(key, { wait: 60_000 })
          turns++
          await lease.release()
        }
      }
      await Promise.all([contend(a), contend(b), contend(a), contend(b)])
      assert.equal(turns, 20)
      await until('the lock to be free', () => a.tryAcquire(key))
    })
  },
  allStoreNames,
)
