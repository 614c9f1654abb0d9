// withLock() with a callback, on every store: the callback is called once, the lock is released
// once, and no error is dropped.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { LockClosedError, LockTimeoutError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { until, within } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/**
 * Throws an exception in each of the `ways` that fixtures/thrower.mjs has, and checks that it is an
 * uncaught exception. The child is its own process, because the test runner would catch it.
 */
async function checkUncaught(t, store, ...ways) {
  const child = startChild(t, 'thrower.mjs', { store: store.url })
  await child.next('ready')
  for (const way of ways) {
    const { isMistake, isHeld, isFree, error } = await child.ask('thrown', { way, key: store.key() })
    assert.deepEqual(
      { isMistake, isHeld, isFree, error },
      { isMistake: true, isHeld: false, isFree: true, error: undefined },
      way,
    )
  }
}

/** Resolves with the arguments of the callback that `begin` is called with. */
const argumentsOf = (begin) => within('the callback', new Promise((resolve) => begin((...given) => resolve(given))))

overStores('callbacks', (store) => {
  test('the callback gets a lease, and done() releases it', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let returned = 'nothing yet'
    const [error, lease, done] = await argumentsOf((callback) => {
      returned = locks.withLock(key, (error, lease, done) => callback(error, lease, done))
    })
    assert.equal(returned, undefined)
    assert.equal(error, null)
    assert.equal(lease.key, key)
    assert.equal(lease.isHeld, true)
    assert.equal(await locks.tryAcquire(key), null)
    assert.deepEqual(await argumentsOf((callback) => done(null, callback)), [null])
    assert.equal(lease.isHeld, false)
    assert.ok(await locks.tryAcquire(key), 'the lock was released before the callback of done was called')
  })

  test('the second of three arguments has the options', async (t) => {
    const locks = store.client(t)
    const [ttl, error] = await argumentsOf((callback) =>
      locks.withLock(store.key(), { ttl: 5_555 }, (error, lease, done) => {
        done(error, () => callback(lease.ttl, error))
      }),
    )
    assert.deepEqual([ttl, error], [5_555, null])
  })

  test('done() accepts its callback alone, and works once', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const [, , done] = await argumentsOf((callback) =>
      locks.withLock(key, (_, lease, done) => callback(_, lease, done)),
    )
    assert.deepEqual(await argumentsOf((callback) => done(callback)), [null])
    const next = await locks.acquire(key)
    done(new Error('too late'), () => assert.fail('called twice'))
    done()
    await next.renew()
    assert.equal(next.isHeld, true)
    assert.equal(await next.release(), true)
  })

  test('an error of the work goes to the callback of done, or else to a listener of the client', async (t) => {
    const locks = store.client(t)
    const mistake = new Error('a mistake of the user')
    const key = store.key()
    const given = await argumentsOf((callback) =>
      locks.withLock(key, (_error, _lease, done) => done(mistake, callback)),
    )
    assert.deepEqual(given, [mistake])
    assert.ok(await locks.tryAcquire(key))

    // Without a listener, the error is not thrown.
    const other = store.key()
    locks.withLock(other, (_error, _lease, done) => done(mistake))
    await until('the lock to be free', async () => (await locks.inspect(other)) === null && locks.tryAcquire(other))

    const emitted = once(locks, 'error')
    locks.withLock(store.key(), (_error, _lease, done) => done(mistake))
    assert.deepEqual(await within("'error'", emitted), [mistake])
  })

  test('if the lock is not granted, the callback gets an error, no lease, and a harmless done()', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const lease = await locks.acquire(key)
    const [error, none, done] = await argumentsOf((callback) =>
      locks.withLock(key, { wait: 20 }, (error, lease, done) => callback(error, lease, done)),
    )
    assert.ok(error instanceof LockTimeoutError, String(error))
    assert.equal(none, undefined)
    assert.deepEqual(await argumentsOf((callback) => done(error, callback)), [error])
    assert.equal(lease.isHeld, true)
  })

  test('the callback also gets the errors of bad arguments', async (t) => {
    const locks = store.client(t)
    const [error] = await argumentsOf((callback) => locks.withLock('', (error, lease, _done) => callback(error, lease)))
    assert.ok(error instanceof TypeError, String(error))
    assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
    const [range] = await argumentsOf((callback) =>
      locks.withLock('k', { ttl: -1 }, (error, lease, _done) => callback(error, lease)),
    )
    assert.ok(range instanceof RangeError, String(range))
  })

  test('if the lease is lost before done(), its callback gets LockLostError or the error of the work', async (t) => {
    const locks = store.client(t)
    const [, lease, done] = await argumentsOf((callback) =>
      locks.withLock(store.key(), { ttl: 150, autoRenew: false }, (_, lease, done) => callback(_, lease, done)),
    )
    await aborted(lease)
    const [error] = await argumentsOf((callback) => done(null, callback))
    lost('expired')(error)

    const [, second, secondDone] = await argumentsOf((callback) =>
      locks.withLock(store.key(), { ttl: 150, autoRenew: false }, (_, lease, done) => callback(_, lease, done)),
    )
    await aborted(second)
    const mistake = new Error('a mistake of the user')
    assert.deepEqual(await argumentsOf((callback) => secondDone(mistake, callback)), [mistake])
  })

  test('an exception of the callback is uncaught, and the lock is free before that', (t) =>
    checkUncaught(t, store, 'callback'))

  test('an exception after done(), or in the callback of done, is also uncaught', (t) =>
    checkUncaught(t, store, 'afterDone', 'callbackOfDone', 'withoutLease'))

  test('a function of two parameters, or with an optional second one, is not a callback', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const work = async (lease, amount = 7) => lease.fence + amount
    assert.equal(work.length, 1)
    assert.ok((await locks.withLock(key, work)) > 7)
    assert.ok((await locks.withLock(key, async (lease, context) => [lease.fence, context]))[0] > 0)
    assert.ok(await locks.tryAcquire(key))
  })

  test('an exception of an async callback is also uncaught, and the lock is free before that', (t) =>
    checkUncaught(t, store, 'asyncCallback'))

  test('several keys, semaphores and read/write locks also accept a callback', async (t) => {
    const locks = store.client(t)
    const keys = [store.key(), store.key()].sort()
    const ways = [
      (callback) => locks.withLock(keys, callback),
      (callback) => locks.semaphore(keys[0], 2).withLock(callback),
      (callback) => locks.readWriteLock(keys[0]).read.withLock({ ttl: 5_000 }, callback),
      (callback) => locks.readWriteLock(keys[0]).write.withLock(callback),
    ]
    for (const way of ways) {
      const [error, lease, done] = await argumentsOf((callback) =>
        way((error, lease, done) => callback(error, lease, done)),
      )
      assert.equal(error, null)
      assert.equal(lease.isHeld, true)
      assert.deepEqual(await argumentsOf((callback) => done(callback)), [null])
      assert.equal(lease.isHeld, false)
    }
  })

  test('the callback of a closed client gets LockClosedError', async (t) => {
    const locks = store.client(t)
    await locks.close()
    const [error] = await argumentsOf((callback) =>
      locks.withLock('k', (error, lease, _done) => callback(error, lease)),
    )
    assert.ok(error instanceof LockClosedError)
  })
})
