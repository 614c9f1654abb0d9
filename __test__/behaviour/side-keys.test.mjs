// Redis stores keep side keys for each lock. No two locks share a side key, and no lock can have
// the name of a side key.

import assert from 'node:assert/strict'
import { EventEmitter, once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'

const WORDS = ['fence', 'queue', 'alive', 'waiters', 'holders', 'broken']

/** Lists [prefix, a key that names a side key, the key of the lock that has this side key]. */
const SIDE_KEYS = [
  ...WORDS.map((word) => ['', `{invoice:7}:${word}`, 'invoice:7']),
  ...WORDS.map((word) => ['{app}:', `{app}:order:5:${word}`, 'order:5']),
  ['{', 'app}:{app}:order:queue', 'app}:order'],
  ['', '{a{b}:waiters', 'a{b'],
  ['', '{20658}:a}b:fence', 'a}b'],
  ['', '{19354}:{}x:alive', '{}x'],
]

/** Lists [prefix, a key that only looks like a side key]. */
const LOOKALIKES = [
  ['lock:', '{lock:x}:fence'],
  ['', '{app}:order:5:queue'],
  ['', '{}:fence'],
  ['', '{a}b:fence'],
  ['', '{a}:fences'],
  ['', 'a:{b}:fence'],
  ['', '{20657}:a}b:fence'],
  ['', '{b}:{a}{b}:fence'],
]

const refused = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE', message: /another key/ }

const ticketOf = (key) => {
  const token = '00000000-0000-4000-8000-000000000000'
  return Buffer.from(JSON.stringify({ v: 1, key, token, fence: 7, ttl: 1_000, most: 0 })).toString('base64url')
}

/** Each function calls one method with the key of a lock. */
const METHODS = {
  acquire: (locks, key) => locks.acquire(key),
  'acquire with retry': (locks, key) => locks.acquire(key, { retry: true }),
  'acquire several': (locks, key) => locks.acquire(['another', key]),
  tryAcquire: (locks, key) => locks.tryAcquire(key),
  'tryAcquire several': (locks, key) => locks.tryAcquire(['another', key]),
  withLock: (locks, key) => locks.withLock(key, () => assert.fail('the section ran')),
  semaphore: (locks, key) => locks.semaphore(key, 2),
  readWriteLock: (locks, key) => locks.readWriteLock(key),
  inspect: (locks, key) => locks.inspect(key),
  forceRelease: (locks, key) => locks.forceRelease(key),
  adopt: (locks, key) => locks.adopt(ticketOf(key)),
  withAdopted: (locks, key) => locks.withAdopted(ticketOf(key), () => assert.fail('the section ran')),
  createLockWorker: (client, key) => createLockWorker({ client, key, startWork() {} }),
}

overStores('side keys', (store) => {
  test('a key that names a side key is refused, and the lock of the side key is not', async (t) => {
    for (const [prefix, key, other] of SIDE_KEYS) {
      const locks = store.client(t, { prefix })
      await assert.rejects(locks.acquire(key), refused, `${prefix}${key}`)
      const lease = await locks.tryAcquire(other)
      assert.ok(lease, `${prefix}${other}`)
      assert.equal(await lease.release(), true)
    }
  })

  test('a key that only looks like a side key is a lock', async (t) => {
    for (const [prefix, key] of LOOKALIKES) {
      const lease = await store.client(t, { prefix }).tryAcquire(key)
      assert.ok(lease, `${prefix}${key}`)
      assert.equal(await lease.release(), true)
    }
  })
})

test('every method that takes a key refuses one that names a side key', async (t) => {
  const locks = createLockClient({ store: 'memory:side-keys', prefix: '' })
  atEnd(t, () => locks.close())
  for (const [name, call] of Object.entries(METHODS)) {
    await assert.rejects(async () => call(locks, '{invoice:7}:fence'), refused, name)
  }
  const options = { store: 'memory:side-keys', prefix: '', key: '{invoice:7}:fence', startWork() {} }
  assert.throws(() => createLockWorker(options), refused)
  // once() marks its id under a key that it makes of the key and the id.
  await assert.rejects(
    locks.once('{x}:{x}', ':fence', () => assert.fail('the section ran')),
    refused,
  )
})

test('every method that takes a lock refuses one that stands for an id of once()', async (t) => {
  const locks = createLockClient({ store: 'memory:once-keys' })
  atEnd(t, () => locks.close())
  const shows = ['inspect', 'forceRelease']
  const takes = Object.entries(METHODS).filter(([name]) => !shows.includes(name) && !/adopt/i.test(name))
  for (const [name, call] of takes) {
    await assert.rejects(async () => call(locks, 'order:5@once:mail'), refused, name)
  }
  const { ran } = await locks.once('order:5', 'mail', () => {})
  assert.equal(ran, true)
  // These keys look alike, and stand for no id.
  for (const key of ['order:5@once:', '@once', 'a@once:b@c', 'a@once:{b}']) {
    assert.ok(await locks.tryAcquire(key), key)
  }
  assert.notEqual(await locks.inspect('order:5@once:mail'), null)
  assert.equal(await locks.forceRelease('order:5@once:mail'), true)
})

describe('side keys: redis', { timeout: 120_000 }, () => {
  const open = (t, store, options) => {
    const locks = createLockClient({ store, handOffs: 0, ...options })
    atEnd(t, () => locks.close())
    return locks
  }

  /** Resolves when one client waits for `key`. */
  const queued = (locks, key) =>
    until(`a waiter for ${key}`, async () => (await locks.inspect(key))?.waiters.length === 1, 5_000)

  test('a release of one lock hands no lease to a waiter of another lock', async (t) => {
    const url = (await startRedis(t)).url()
    const [a, b, c] = [open(t, url), open(t, url), open(t, url)]
    const [key, other] = ['account:{lock:account:x}', 'account:x}:lock:account:{lock:account:x']
    for (let round = 0; round < 8; round++) {
      let inside = 0
      const events = new EventEmitter()
      const [entered, left] = [once(events, 'entered'), once(events, 'left')]
      const section = async () => {
        inside++
        events.emit('entered')
        await left
        inside--
      }
      const first = a.withLock(key, section)
      await entered
      const lease = await c.acquire(other)
      const second = b.withLock(key, section)
      await queued(b, key)
      await lease.release()
      // A notice would reach the waiter over the same connection before this answer.
      const info = await b.inspect(key)
      assert.equal(inside, 1, `${inside} inside in round ${round}`)
      assert.equal(info.waiters.length, 1)
      events.emit('left')
      await Promise.all([first, second])
    }
  })

  for (const [prefix, key, side] of [
    ['{app}:', 'order:5', '{app}:order:5:queue'],
    ['', 'invoice:7', '{invoice:7}:queue'],
    ['', 'invoice:7', '{invoice:7}:fence'],
  ]) {
    test(`a request for ${side} does not keep a waiter for ${key} from its lock (prefix '${prefix}')`, async (t) => {
      const url = (await startRedis(t)).url()
      const [a, b, c] = [open(t, url, { prefix }), open(t, url, { prefix }), open(t, url, { prefix })]
      const outcome = await c.tryAcquire(side).catch((error) => error)
      const lease = await a.acquire(key)
      const waiting = b.acquire(key, { wait: 5_000 })
      await Promise.race([queued(a, key), waiting])
      await lease.release()
      const next = await waiting
      assert.ok(next.fence > lease.fence)
      assert.equal(outcome?.code, refused.code, String(outcome))
    })
  }

  test('list() returns locks whose names look like side keys, but no side keys', async (t) => {
    const locks = open(t, (await startRedis(t)).url(), { prefix: '' })
    const keys = ['{app}:order:5:queue', 'a}b', 'order:5', '{}:fence', 'x{42}', '{42}:x{43}:alive'].sort()
    for (const key of keys) await locks.acquire(key)
    const held = await locks.list()
    assert.deepEqual(held.locks.map(({ key }) => key).sort(), keys)
  })
})
