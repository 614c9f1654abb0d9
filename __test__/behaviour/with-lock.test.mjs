// withLock, on every store: whose error wins, and what is left when it is over.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LockAbortedError, LockTimeoutError } from 'leasehold'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

overStores('withLock', (store) => {
  test('runs the function with a held lease, gives its value and releases', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let lease
    const value = await locks.withLock(key, async (given) => {
      lease = given
      assert.equal(lease.isHeld, true)
      assert.equal(await locks.tryAcquire(key), null)
      return 42
    })
    assert.equal(value, 42)
    assert.equal(lease.isHeld, false)
    assert.ok(await locks.tryAcquire(key), 'it was released before withLock settled')
  })

  test('takes options in the middle, and a function that is not async', async (t) => {
    const locks = store.client(t)
    assert.equal(await locks.withLock(store.key(), { ttl: 5_555 }, (lease) => lease.ttl), 5_555)
    assert.equal(await locks.withLock(store.key(), () => 'plain'), 'plain')
    assert.equal(await locks.withLock(store.key(), () => {}), undefined)
  })

  test("the user's own error comes through as it is, thrown or rejected, and the lock is free", async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const mistake = new Error('a mistake of the user')
    const fail = () => {
      throw mistake
    }
    await assert.rejects(locks.withLock(key, fail), (error) => error === mistake)
    await assert.rejects(
      locks.withLock(key, async () => fail()),
      (error) => error === mistake,
    )
    await assert.rejects(
      locks.withLock(key, () => Promise.reject(undefined)),
      (error) => error === undefined,
    )
    assert.ok(await locks.tryAcquire(key))
  })

  test('lost while the function ran: LockLostError, though the function succeeded', async (t) => {
    const locks = store.client(t)
    const running = locks.withLock(store.key(), { ttl: 200, autoRenew: false }, async (lease) => {
      await aborted(lease)
      return 'as if nothing had happened'
    })
    await assert.rejects(running, lost('expired'))
  })

  test("lost while the function ran, and the function failed: the user's error", async (t) => {
    const mistake = new Error('a mistake of the user')
    const running = store.client(t).withLock(store.key(), { ttl: 200, autoRenew: false }, async (lease) => {
      await aborted(lease)
      throw mistake
    })
    await assert.rejects(running, (error) => error === mistake)
  })

  test('released by the function itself: no loss', async (t) => {
    const locks = store.client(t)
    const value = await locks.withLock(store.key(), async (lease) => {
      await lease.release()
      return 'done'
    })
    assert.equal(value, 'done')
  })

  test('not granted: the function does not run', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    await locks.acquire(key)
    const never = () => assert.fail('ran without the lock')
    await assert.rejects(locks.withLock(key, { wait: 30 }, never), LockTimeoutError)
    await assert.rejects(locks.withLock(key, { signal: AbortSignal.abort() }, never), LockAbortedError)
  })

  test('sections never overlap', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    let balance = 0
    const deposit = (_, i) =>
      clients[i % 3].withLock(key, { wait: 60_000 }, async () => {
        const seen = balance
        await new Promise((resolve) => setTimeout(resolve, 1))
        balance = seen + 1
      })
    await Promise.all(Array.from({ length: 60 }, deposit))
    assert.equal(balance, 60)
  })
})
