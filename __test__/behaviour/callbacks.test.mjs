// withLock in the style of callbacks, on every store: called once, released once, and nothing thrown away.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { LockClosedError, LockTimeoutError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { until, within } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/** What becomes of an exception in that way of fixtures/thrower.mjs: a process of its own, whose exceptions no runner takes. */
async function thrown(t, store, ...ways) {
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

/** What a callback of `begin` was called with. */
const called = (begin) => within('the callback', new Promise((resolve) => begin((...given) => resolve(given))))

overStores('callbacks', (store) => {
  test('gets a lease, and releases it when it is done', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let returned = 'nothing yet'
    const [error, lease, done] = await called((callback) => {
      returned = locks.withLock(key, (error, lease, done) => callback(error, lease, done))
    })
    assert.equal(returned, undefined)
    assert.equal(error, null)
    assert.equal(lease.key, key)
    assert.equal(lease.isHeld, true)
    assert.equal(await locks.tryAcquire(key), null)
    assert.deepEqual(await called((callback) => done(null, callback)), [null])
    assert.equal(lease.isHeld, false)
    assert.ok(await locks.tryAcquire(key), 'it was released before it was said')
  })

  test('takes options in the middle', async (t) => {
    const locks = store.client(t)
    const [ttl, error] = await called((callback) =>
      locks.withLock(store.key(), { ttl: 5_555 }, (error, lease, done) => {
        done(error, () => callback(lease.ttl, error))
      }),
    )
    assert.deepEqual([ttl, error], [5_555, null])
  })

  test('done takes its callback alone, and counts once', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const [, , done] = await called((callback) => locks.withLock(key, (_, lease, done) => callback(_, lease, done)))
    assert.deepEqual(await called((callback) => done(callback)), [null])
    const next = await locks.acquire(key)
    done(new Error('too late'), () => assert.fail('called twice'))
    done()
    await next.renew()
    assert.equal(next.isHeld, true)
    assert.equal(await next.release(), true)
  })

  test('an error of the work goes to the callback of done, or else to the client', async (t) => {
    const locks = store.client(t)
    const mistake = new Error('a mistake of the user')
    const key = store.key()
    const given = await called((callback) => locks.withLock(key, (_error, _lease, done) => done(mistake, callback)))
    assert.deepEqual(given, [mistake])
    assert.ok(await locks.tryAcquire(key))

    // Without a listener: not thrown.
    const quiet = store.key()
    locks.withLock(quiet, (_error, _lease, done) => done(mistake))
    await until('the lock to be free', async () => (await locks.inspect(quiet)) === null && locks.tryAcquire(quiet))

    const heard = once(locks, 'error')
    locks.withLock(store.key(), (_error, _lease, done) => done(mistake))
    assert.deepEqual(await within("'error'", heard), [mistake])
  })

  test('not granted: an error, no lease, and a done that does no harm', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const lease = await locks.acquire(key)
    const [error, none, done] = await called((callback) =>
      locks.withLock(key, { wait: 20 }, (error, lease, done) => callback(error, lease, done)),
    )
    assert.ok(error instanceof LockTimeoutError, String(error))
    assert.equal(none, undefined)
    assert.deepEqual(await called((callback) => done(error, callback)), [error])
    assert.equal(lease.isHeld, true)
  })

  test('bad arguments are told by the callback, too', async (t) => {
    const locks = store.client(t)
    const [error] = await called((callback) => locks.withLock('', (error, lease, _done) => callback(error, lease)))
    assert.ok(error instanceof TypeError, String(error))
    assert.equal(error.code, 'ERR_INVALID_ARG_VALUE')
    const [range] = await called((callback) =>
      locks.withLock('k', { ttl: -1 }, (error, lease, _done) => callback(error, lease)),
    )
    assert.ok(range instanceof RangeError, String(range))
  })

  test('lost before it was done: LockLostError, but not in the place of an error of the work', async (t) => {
    const locks = store.client(t)
    const [, lease, done] = await called((callback) =>
      locks.withLock(store.key(), { ttl: 150, autoRenew: false }, (_, lease, done) => callback(_, lease, done)),
    )
    await aborted(lease)
    const [error] = await called((callback) => done(null, callback))
    lost('expired')(error)

    const [, second, secondDone] = await called((callback) =>
      locks.withLock(store.key(), { ttl: 150, autoRenew: false }, (_, lease, done) => callback(_, lease, done)),
    )
    await aborted(second)
    const mistake = new Error('a mistake of the user')
    assert.deepEqual(await called((callback) => secondDone(mistake, callback)), [mistake])
  })

  test('what the callback throws is an uncaught exception, and the lock is free before that', (t) =>
    thrown(t, store, 'callback'))

  test('what it throws after it was done, or what the callback of done throws, is so, too', (t) =>
    thrown(t, store, 'afterDone', 'callbackOfDone', 'withoutLease'))

  test('a function of two parameters, or an optional second, is no callback', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const work = async (lease, amount = 7) => lease.fence + amount
    assert.equal(work.length, 1)
    assert.ok((await locks.withLock(key, work)) > 7)
    assert.ok((await locks.withLock(key, async (lease, context) => [lease.fence, context]))[0] > 0)
    assert.ok(await locks.tryAcquire(key))
  })

  test('what an async callback throws is an uncaught exception, too, and the lock is free before that', (t) =>
    thrown(t, store, 'asyncCallback'))

  test('several keys, semaphores and read/write locks have it, too', async (t) => {
    const locks = store.client(t)
    const keys = [store.key(), store.key()].sort()
    const ways = [
      (callback) => locks.withLock(keys, callback),
      (callback) => locks.semaphore(keys[0], 2).withLock(callback),
      (callback) => locks.readWriteLock(keys[0]).read.withLock({ ttl: 5_000 }, callback),
      (callback) => locks.readWriteLock(keys[0]).write.withLock(callback),
    ]
    for (const way of ways) {
      const [error, lease, done] = await called((callback) => way((error, lease, done) => callback(error, lease, done)))
      assert.equal(error, null)
      assert.equal(lease.isHeld, true)
      assert.deepEqual(await called((callback) => done(callback)), [null])
      assert.equal(lease.isHeld, false)
    }
  })

  test('a closed client says so', async (t) => {
    const locks = store.client(t)
    await locks.close()
    const [error] = await called((callback) => locks.withLock('k', (error, lease, _done) => callback(error, lease)))
    assert.ok(error instanceof LockClosedError)
  })
})
