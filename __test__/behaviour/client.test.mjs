// A client from ready() to close(), and what its inspect() and stats() return, on every store.

import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { LockClosedError, LockError } from 'leasehold'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

const closed = (error) => {
  assert.ok(error instanceof LockClosedError && error instanceof LockError, String(error))
  assert.equal(error.code, 'ERR_LOCK_CLOSED')
  assert.equal(error.name, 'LockClosedError')
  return true
}

overStores('client', (store) => {
  test('ready() resolves when the store is usable, as often as it is called', async (t) => {
    const locks = store.client(t)
    assert.ok(locks instanceof EventEmitter)
    assert.equal(await locks.ready(), undefined)
    await Promise.all([locks.ready(), locks.ready()])
  })

  test('inspect() returns the holder of a lock to any client', async (t) => {
    const [a, b] = [store.client(t, { name: 'the holder ✓' }), store.client(t, { name: 'another' })]
    const key = store.key()
    assert.equal(await b.inspect(key), null)
    const lease = await a.acquire(key, { ttl: 20_000 })
    for (const locks of [a, b]) {
      const info = await locks.inspect(key)
      assert.equal(info.holder, 'the holder ✓')
      assert.equal(info.fence, lease.fence)
      assert.ok(info.remaining > 0 && info.remaining <= 20_000, `${info.remaining}`)
      assert.equal(info.shared, false)
      const { holder, fence, remaining } = info
      assert.deepEqual(info.leases, [{ holder, fence, remaining }])
      assert.deepEqual([info.waiters, info.waiting], [[], 0])
      assert.ok(!JSON.stringify(info).includes(lease.token), 'the result must not contain the token')
    }
    await lease.release()
    assert.equal(await b.inspect(key), null)
    assert.ok(await b.tryAcquire(key), 'inspect() holds no lock')
  })

  test('inspect() returns the new holder and the larger fence after a hand-over', async (t) => {
    const [a, b] = [store.client(t, { name: 'a' }), store.client(t, { name: 'b' })]
    const key = store.key()
    const first = await a.acquire(key)
    await first.release()
    const second = await b.acquire(key)
    const info = await a.inspect(key)
    assert.equal(info.holder, 'b')
    assert.equal(info.fence, second.fence)
    assert.ok(info.fence > first.fence)
  })

  test('stats() counts acquires, releases, losses and their failures', async (t) => {
    const locks = store.client(t)
    const { stores, ...zero } = locks.stats()
    assert.deepEqual(
      stores.map(({ store, state, failures }) => ({ store, state, failures })),
      store.name === 'redis' ? [{ store: store.url, state: 'closed', failures: 0 }] : [],
    )
    assert.ok(Object.keys(zero).length >= 10, inspect(zero))
    assert.ok(
      Object.values(zero).every((value) => value === 0),
      inspect(zero),
    )

    const [first, second] = await Promise.all([locks.acquire(store.key()), locks.acquire(store.key())])
    assert.equal(locks.stats().held, 2)
    await first.renew()
    assert.equal(await locks.tryAcquire(first.key), null)
    await assert.rejects(locks.acquire(first.key, { wait: 20 }))
    const controller = new AbortController()
    const abandoned = locks.acquire(first.key, { wait: Infinity, signal: controller.signal })
    await until('it to wait', () => locks.stats().waiting === 1)
    controller.abort()
    await assert.rejects(abandoned)
    await until('it to be forgotten', () => locks.stats().waiting === 0)
    await Promise.all([first.release(), second.release()])
    await aborted(await locks.acquire(store.key(), { ttl: 150, autoRenew: false }))
    await (await locks.acquire(store.key())).detach()

    const { contended, stores: _, ...counts } = locks.stats()
    assert.ok(contended >= 2, `${contended}`)
    assert.deepEqual(
      { ...counts },
      {
        ...{ held: 0, waiting: 0, acquired: 4, released: 2, detached: 1, lost: 1 },
        ...{ timeouts: 1, aborted: 1, renewals: 1, errors: 0 },
        ...{ waited: 0, waitMs: 0, longestWaitMs: 0, localHandOffs: 0, remoteHandOffs: 0 },
      },
    )
  })

  test('inspect() returns the waiters and how long they have waited', async (t) => {
    const [a, b, c] = ['a', 'b', 'c'].map((name) => store.client(t, { name }))
    const key = store.key()
    const lease = await a.acquire(key)
    const writes = b.acquire(key, { wait: 20_000 })
    await until('b to wait', async () => (await a.inspect(key)).waiters.length === 1)
    const reads = c.readWriteLock(key).read.acquire({ wait: 20_000 })
    const info = await until('both to wait', async () => {
      const info = await c.inspect(key)
      return info.waiters.length === 2 && info
    })
    assert.equal(info.holder, 'a')
    assert.deepEqual(
      info.waiters.map(({ holder, shared }) => [holder, shared]),
      [
        ['b', false],
        ['c', true],
      ],
    )
    const [first, second] = info.waiters
    assert.ok(first.age >= second.age && second.age >= 0 && first.age < 20_000, inspect(info.waiters))
    assert.ok(info.waiting >= 1, 'at least c waits in this process')
    await lease.release()
    await (await writes).release()
    await (await reads).release()
  })

  test('stats() counts waiters, and the hand-offs by which they got the lock', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const first = await a.acquire(key)
    const local = a.acquire(key, { wait: 20_000 })
    await until('the local waiter to wait', () => a.stats().waiting === 1)
    await sleep(50)
    await first.release()
    const second = await local
    const { waited, waitMs, longestWaitMs } = a.stats()
    assert.equal(waited, 1)
    assert.ok(waitMs >= 49 && waitMs < 20_000, `${waitMs}`)
    assert.equal(longestWaitMs, waitMs)

    const remote = b.acquire(key, { wait: 20_000 })
    await until('the remote waiter to wait', async () => (await a.inspect(key)).waiters.length === 1)
    await second.release()
    await (await remote).release()
    assert.equal(b.stats().waited, 1)
    assert.equal(b.stats().remoteHandOffs, 1)
    assert.equal(b.stats().localHandOffs, 0)
  })

  test('a lock is handed on between waiters of one client, unless handOffs is 0', async (t) => {
    const contend = async (locks) => {
      const key = store.key()
      const turns = Array.from({ length: 50 }, () => locks.withLock(key, { wait: 60_000 }, () => {}))
      await Promise.all(turns)
      return locks.stats()
    }
    const byDefault = await contend(store.client(t))
    assert.equal(byDefault.acquired, 50)
    assert.ok(byDefault.localHandOffs > 0 && byDefault.localHandOffs < 50, `${byDefault.localHandOffs}`)
    const strict = await contend(store.client(t, { handOffs: 0 }))
    assert.deepEqual([strict.acquired, strict.localHandOffs], [50, 0])
  })

  test('the client also emits the loss of a lease', async (t) => {
    const locks = store.client(t)
    const emitted = once(locks, 'lost')
    const lease = await locks.acquire(store.key(), { ttl: 150, autoRenew: false })
    const [which, error] = await within("'lost'", emitted)
    assert.equal(which, lease)
    assert.equal(error, lease.signal.reason)
  })

  test('close() releases all leases, and their signals abort', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = Array.from({ length: 50 }, store.key)
    const leases = await Promise.all(keys.map((key) => a.acquire(key, { ttl: 60_000 })))
    const { ms } = await timed(() => a.close())
    assert.ok(ms < 2_500, `${ms} ms`)
    for (const lease of leases) {
      assert.equal(lease.isHeld, false)
      assert.equal(lease.signal.aborted, true)
      lost('closed')(lease.signal.reason)
      assert.equal(await lease.release(), false)
    }
    const next = await Promise.all(keys.map((key) => b.tryAcquire(key)))
    assert.ok(next.every(Boolean), 'the locks are free at the store when close() has resolved')
  })

  test('close() rejects all waiters', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key)
    const waiting = [b.acquire(key, { wait: Infinity }), b.withLock(key, () => assert.fail('closed')), b.acquire(key)]
    const rejections = waiting.map((promise) => assert.rejects(promise, closed))
    await b.close()
    await Promise.all(rejections)
    assert.equal(lease.isHeld, true)
    await lease.release()
    assert.ok(await a.tryAcquire(key))
  })

  test('the errors of a closed client name the lock of the call', async (t) => {
    const [locks, other] = [store.client(t), store.client(t)]
    const key = store.key()
    await other.acquire(key)
    const of = (key) => ({
      message: `could not use the lock "${key}": the client was closed (work that goes on needs a new one)`,
      key,
    })
    const refused = assert.rejects(locks.acquire(key, { wait: 20_000 }), of(key))
    await locks.close()
    await refused
    for (const call of [
      () => locks.acquire('k'),
      () => locks.acquire(['k', 'l']),
      () => locks.tryAcquire('k'),
      () => locks.withLock('k', () => assert.fail('closed')),
      () => locks.inspect('k'),
      () => locks.forceRelease('k'),
    ]) {
      await assert.rejects(async () => call(), of('k'))
    }
    await assert.rejects(locks.list(), { message: 'the client was closed (work that goes on needs a new one)' })
  })

  test('a closed client rejects every call, and can be closed again', async (t) => {
    const locks = store.client(t)
    await locks.acquire(store.key())
    await Promise.all([locks.close(), locks.close()])
    await locks.close()
    await locks[Symbol.asyncDispose]()
    await assert.rejects(async () => locks.acquire(store.key()), closed)
    await assert.rejects(async () => locks.tryAcquire(store.key()), closed)
    await assert.rejects(async () => locks.withLock(store.key(), () => assert.fail('closed')), closed)
    await assert.rejects(async () => locks.inspect(store.key()), closed)
    await assert.rejects(async () => locks.ready(), closed)
  })

  test('an acquire that is followed by close() settles, and leaves no lock behind', async (t) => {
    const other = store.client(t)
    for (let i = 0; i < 10; i++) {
      const locks = store.client(t)
      const key = store.key()
      const acquiring = locks.acquire(key, { ttl: 60_000 }).catch((error) => error)
      if (i % 2) await new Promise(setImmediate)
      await locks.close()
      const outcome = await acquiring
      if (outcome instanceof Error) closed(outcome)
      else assert.equal(outcome.isHeld, false)
      await until('the lock to be free', () => other.tryAcquire(key), 5_000)
    }
  })

  test('a client that opens while another closes stays open', async (t) => {
    for (let i = 0; i < 300; i++) {
      const first = store.client(t)
      await first.acquire(store.key())
      const closing = first.close()
      if (i % 2) await new Promise(setImmediate)
      const second = store.client(t)
      const lease = await second.acquire(store.key())
      assert.equal(await lease.release(), true)
      await Promise.all([closing, second.close()])
    }
  })

  test('closing one client does not affect the others', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const lease = await b.acquire(key, { ttl: 500 })
    await a.acquire(store.key())
    await a.close()
    await lease.renew()
    assert.equal(lease.isHeld, true)
    assert.equal(await lease.release(), true)
  })

  test('a client that was never used can be closed', async (t) => {
    await store.client(t).close()
  })
})
