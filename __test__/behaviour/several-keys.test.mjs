// acquire() of several keys, on every store: the client holds all or none, never deadlocks, and
// loses them together.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { LockAbortedError, LockClosedError, LockError, LockTimeoutError } from 'leasehold'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

/** The largest delay of an event on a busy machine, in ms. */
const SLACK = 2_000

overStores('several keys', (store) => {
  /** Returns new keys in the order in which the client acquires them. */
  const keysOf = (count) => Array.from({ length: count }, () => store.key()).sort()

  const assertFree = async (locks, keys) => {
    for (const key of keys) {
      const lease = await locks.tryAcquire(key)
      assert.ok(lease, `key ${keys.indexOf(key)} is taken`)
      await lease.release()
    }
  }

  test('all keys are held, and the lease has all its properties', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(3)
    const given = [keys[2], keys[0], keys[1], keys[0]]
    const lease = await a.acquire(given, { ttl: 5_000 })
    assert.deepEqual(given, [keys[2], keys[0], keys[1], keys[0]], 'the array of the caller is unchanged')
    assert.deepEqual(lease.keys, keys)
    assert.deepEqual(
      lease.leases.map(({ key }) => key),
      keys,
    )
    assert.deepEqual(lease.fences, Object.fromEntries(lease.leases.map(({ key, fence }) => [key, fence])))
    assert.ok(Object.values(lease.fences).every((fence) => Number.isSafeInteger(fence) && fence > 0))
    assert.equal(lease.isHeld, true)
    assert.ok(lease.remaining > 1_000 && lease.remaining <= 5_000, `${lease.remaining}`)
    assert.equal(lease.signal.aborted, false)
    assert.equal('detach' in lease, false)
    lease.assertHeld()
    for (const key of keys) assert.equal(await b.tryAcquire(key), null)
    assert.equal(await b.tryAcquire(keys), null)
    assert.equal(await lease.release(), true)
    assert.equal(lease.release(), lease.release())
    assert.equal(lease.isHeld, false)
    assert.equal(lease.remaining, 0)
    assert.equal(lease.signal.aborted, false, 'a release is not a loss')
    assert.throws(() => lease.assertHeld(), { constructor: LockError, code: 'ERR_LOCK_RELEASED' })
    await assertFree(b, keys)
  })

  test('remaining is the smallest of all leases, and renew() renews all', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(keysOf(3), { ttl: 3_000, autoRenew: false })
    await lease.leases[1].renew(60_000)
    assert.ok(lease.remaining <= 3_000, `${lease.remaining}`)
    await lease.renew(30_000)
    assert.ok(lease.remaining > 20_000, `${lease.remaining}`)
    assert.deepEqual(
      lease.leases.map(({ ttl }) => ttl),
      [30_000, 30_000, 30_000],
    )
    await assert.rejects(lease.renew(0), RangeError)
    await lease.release()
    await assert.rejects(lease.renew(), { constructor: LockError, code: 'ERR_LOCK_RELEASED' })
  })

  test('tryAcquire returns null if one key is held, and releases the others', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(3)
    const last = await a.acquire(keys[2])
    assert.equal(await b.tryAcquire(keys), null)
    await assertFree(a, keys.slice(0, 2))
    await last.release()
    const lease = await b.tryAcquire(keys)
    assert.equal(lease.isHeld, true)
  })

  test('one wait is for all keys together, and its end releases the keys that were acquired', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(3)
    const [second, third] = [await a.acquire(keys[1]), await a.acquire(keys[2])]
    const waiting = timed(() => b.acquire(keys, { wait: 500 }))
    await until('the first to be held', async () => (await a.inspect(keys[0])) !== null)
    await sleep(200)
    await second.release()
    const { ms, error } = await waiting
    assert.ok(error instanceof LockTimeoutError, String(error))
    assert.equal(error.key, keys[2])
    assert.match(error.message, /3 keys.* 500 ms/)
    assert.ok(ms >= 499 && ms < 500 + SLACK, `${ms} ms`)
    await assertFree(a, keys.slice(0, 2))
    assert.equal(third.isHeld, true)
  })

  test('wait: 0 tries each key once', async (t) => {
    const locks = store.client(t)
    const keys = keysOf(2)
    const lease = await locks.acquire(keys, { wait: 0 })
    await assert.rejects(locks.acquire(keys, { wait: 0 }), LockTimeoutError)
    await lease.release()
  })

  test('an abort during the wait for a key rejects at once, and releases the others', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(3)
    await a.acquire(keys[2])
    const controller = new AbortController()
    const waiting = b.acquire(keys, { wait: Infinity, signal: controller.signal })
    await until('the second to be held', async () => (await a.inspect(keys[1])) !== null)
    const reason = new Error('the caller gave up')
    controller.abort(reason)
    const { ms, error } = await timed(() => waiting)
    assert.ok(error instanceof LockAbortedError, String(error))
    assert.equal(error.cause, reason)
    assert.ok(ms < SLACK, `${ms} ms`)
    await until('the first two to be free', async () => {
      const infos = await Promise.all(keys.slice(0, 2).map((key) => a.inspect(key)))
      return infos.every((info) => info === null)
    })
    await assert.rejects(b.acquire(keys, { signal: controller.signal }), LockAbortedError)
    await assert.rejects(b.tryAcquire(keys, { signal: controller.signal }), LockAbortedError)
  })

  test('if a key is lost during the wait for another, the wait ends', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const losses = []
    b.on('lost', (lease) => losses.push(lease))
    const keys = keysOf(2)
    await a.acquire(keys[1])
    const { ms, error } = await timed(() => b.acquire(keys, { ttl: 200, autoRenew: false, wait: 20_000 }))
    lost('expired')(error)
    assert.equal(error.key, keys[0])
    assert.ok(ms < 200 + SLACK, `${ms} ms`)
    assert.deepEqual(losses, [], 'no caller has received the lease')
  })

  test('if one lease is lost, the signal aborts, and the others are released', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(2)
    const lease = await a.acquire(keys, { ttl: 400, autoRenew: false })
    await lease.leases[1].renew(60_000)
    const emitted = once(a, 'lost')
    await aborted(lease)
    lost('expired')(lease.signal.reason)
    assert.equal(lease.signal.reason.key, keys[0])
    const [which, error] = await within("'lost'", emitted)
    assert.equal(which, lease.leases[0])
    assert.equal(error, lease.signal.reason)
    assert.equal(lease.isHeld, false)
    assert.equal(lease.leases[1].isHeld, false)
    assert.throws(() => lease.assertHeld(), lost('expired'))
    await assert.rejects(lease.renew(), lost('expired'))
    assert.equal(await lease.release(), false)
    await until('the other key to be free before its ttl', () => b.tryAcquire(keys[1]))
  })

  test('withLock holds several keys', async (t) => {
    const locks = store.client(t)
    const keys = keysOf(2)
    const fences = await locks.withLock([...keys].reverse(), async (lease) => {
      lease.assertHeld()
      assert.equal(await locks.tryAcquire(keys[0]), null)
      return lease.fences
    })
    assert.deepEqual(Object.keys(fences), keys)
    await assertFree(locks, keys)
    const running = locks.withLock(keys, { ttl: 200, autoRenew: false }, (lease) => aborted(lease))
    await assert.rejects(running, lost('expired'))
  })

  test('callers that want the same keys in different orders never deadlock', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t)]
    const keys = keysOf(4)
    const inside = new Set()
    const holdThree = async (_, i) => {
      // Each caller wants three of the four keys, in its own order.
      const mine = keys.map((_, k) => keys[(i + k * 3) % 4]).slice(0, 3)
      await clients[i % 3].withLock(mine, { wait: 60_000 }, async () => {
        for (const key of mine) {
          assert.equal(inside.has(key), false)
          inside.add(key)
        }
        await new Promise(setImmediate)
        for (const key of mine) inside.delete(key)
      })
    }
    await within('all turns', Promise.all(Array.from({ length: 30 }, holdThree)), 60_000)
  })

  test('close() rejects a wait for several keys, and a lease of several keys is lost', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const keys = keysOf(3)
    await a.acquire(keys[2])
    const held = await b.acquire([store.key(), store.key()])
    const { signal } = held
    const rejected = assert.rejects(b.acquire(keys, { wait: Infinity }), LockClosedError)
    await until('the second to be held', async () => (await a.inspect(keys[1])) !== null)
    await b.close()
    await rejected
    lost('closed')(signal.reason)
    assert.equal(await held.release(), false)
    await assertFree(a, keys.slice(0, 2))
    await assert.rejects(b.acquire(keys), LockClosedError)
  })

  test('a key may have the name of a property of Object.prototype', async (t) => {
    const keys = ['constructor', '__proto__']
    const locks = store.client(t, { prefix: `${store.key()}:` })
    const lease = await locks.acquire(keys)
    assert.deepEqual(Object.keys(lease.fences), ['__proto__', 'constructor'])
    assert.equal(Object.getOwnPropertyDescriptor(lease.fences, '__proto__').value, lease.leases[0].fence)
  })

  test('printing or serializing the lease shows no token', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(keysOf(2))
    const tokens = lease.leases.map(({ token }) => token)
    const printed = inspect({ lease, locks }, { depth: 10, showHidden: true }) + JSON.stringify([lease, lease.leases])
    for (const token of tokens) assert.ok(!printed.includes(token))
    assert.match(inspect(lease), /^MultiLease \{/)
    assert.deepEqual(Object.keys(JSON.parse(JSON.stringify(lease))), ['keys', 'fences', 'isHeld', 'remaining'])
  })

  test('await using releases all keys', async (t) => {
    const locks = store.client(t)
    const keys = keysOf(2)
    const lease = await locks.acquire(keys)
    await lease[Symbol.asyncDispose]()
    await assertFree(locks, keys)
  })
})
