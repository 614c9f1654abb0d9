// withLock(), on every store: its value, its error, and the release of the lock.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LockAbortedError, LockTimeoutError } from 'leasehold'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

overStores('withLock', (store) => {
  test('withLock runs the function with a held lease, returns its value, and releases', async (t) => {
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
    assert.ok(await locks.tryAcquire(key), 'the lock was released before withLock settled')
  })

  test('withLock accepts options before the function, and a function that is not async', async (t) => {
    const locks = store.client(t)
    assert.equal(await locks.withLock(store.key(), { ttl: 5_555 }, (lease) => lease.ttl), 5_555)
    assert.equal(await locks.withLock(store.key(), () => 'plain'), 'plain')
    assert.equal(await locks.withLock(store.key(), () => {}), undefined)
  })

  test('an error of the function is thrown unchanged, and the lock is free', async (t) => {
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

  test('if the lease is lost while the function runs, withLock rejects with LockLostError', async (t) => {
    const locks = store.client(t)
    const running = locks.withLock(store.key(), { ttl: 200, autoRenew: false }, async (lease) => {
      await aborted(lease)
      return 'done'
    })
    await assert.rejects(running, lost('expired'))
  })

  test('if the lease is lost and the function fails, withLock rejects with the error of the function', async (t) => {
    const mistake = new Error('a mistake of the user')
    const running = store.client(t).withLock(store.key(), { ttl: 200, autoRenew: false }, async (lease) => {
      await aborted(lease)
      throw mistake
    })
    await assert.rejects(running, (error) => error === mistake)
  })

  test('a release by the function is not a loss', async (t) => {
    const locks = store.client(t)
    const value = await locks.withLock(store.key(), async (lease) => {
      await lease.release()
      return 'done'
    })
    assert.equal(value, 'done')
  })

  test('if the lock is not granted, the function does not run', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    await locks.acquire(key)
    const never = () => assert.fail('the function ran without the lock')
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
