// Ambiguity is cleaned up: a lease that an abandoned acquire leaves at a Redis server is released,
// no matter how long the server was silent, and even if it refused the release at first.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

const TTL = 5_000
/**
 * How soon after the thaw, or after the end of a refusal, the lock has to be free, in ms: much
 * sooner than the ttl.
 */
const SOON = 2_500
const SECRET = 'hunter2-is-a-secret'

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, storeTimeout: 300, ...options })
  atEnd(t, () => client.close())
  return client
}

/**
 * Waits until the server has carried out an acquire of the lock, and then until the lock is free.
 * Returns how long both took, in ms.
 */
async function untilFree(server, key) {
  const began = now()
  await until('the acquire to be executed', () => server.ask('EXISTS', `{lock:${key}}:fence`))
  await until('the lock to be free', async () => !(await server.ask('EXISTS', `lock:${key}`)))
  return now() - began
}

/** Ways to send an acquire to a frozen server and to give it up. */
const WAYS = {
  'that timed out': (locks, key) => assert.rejects(locks.acquire(key, { ttl: TTL, wait: 500 })),
  'by tryAcquire()': (locks, key) => assert.rejects(locks.tryAcquire(key, { ttl: TTL })),
  'that was aborted': async (locks, key) => {
    const controller = new AbortController()
    const asked = assert.rejects(locks.acquire(key, { ttl: TTL, wait: Infinity, signal: controller.signal }))
    await sleep(200)
    controller.abort()
    await asked
  },
  'that close() ended': async (locks, key) => {
    const asked = assert.rejects(locks.acquire(key, { ttl: TTL, wait: Infinity }))
    await sleep(200)
    await within('close() to end', locks.close(), 2_000)
    await asked
  },
}

describe('process: redis leftovers', { concurrency: 4, timeout: 240_000 }, () => {
  for (const [how, giveUp] of Object.entries(WAYS)) {
    test(`an acquire ${how} at a server that stays frozen for longer than the ttl is released after the thaw`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url())
      await locks.withLock('warm', () => {})
      const key = randomUUID()
      server.freeze()
      await giveUp(locks, key)
      await sleep(TTL + 2_000)
      server.thaw()
      const ms = await untilFree(server, key)
      assert.ok(ms < SOON, `free ${ms.toFixed(0)} ms after the thaw`)
      t.diagnostic(`free ${ms.toFixed(0)} ms after the thaw`)
    })
  }

  test('a server of a quorum that stays frozen after the last client has closed hears of the releases', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
      { ttl: 60_000 },
    )
    await locks.withLock('warm', () => {})
    const [held, later] = [randomUUID(), randomUUID()]
    const before = await locks.acquire(held)
    const opened = once(locks, 'breaker')
    servers[0].freeze()
    const during = await locks.acquire(later)
    const asking = setInterval(() => locks.withLock('ask', () => {}).catch(() => {}), 50)
    await within('the breaker to open', opened, 10_000)
    clearInterval(asking)
    assert.deepEqual([await before.release(), await during.release()], [true, true])
    await locks.close()
    await sleep(7_000)
    servers[0].thaw()
    const free = (key) => async () => !(await servers[0].ask('EXISTS', `lock:${key}`))
    for (const key of [held, later]) await until('the lock to be free at the server', free(key), 5_000)
  })

  test('the clean-up at a server that stays silent does not keep the process alive', async (t) => {
    const server = await startRedis(t)
    const child = startChild(t, 'leftover.mjs', { store: server.url(), ttl: 300 })
    await child.next('ready')
    server.freeze()
    child.tell('ask')
    const { at } = await child.next('last-line')
    const ended = await within('the end of the process', child.ended, 10_000)
    assert.deepEqual(ended, { code: 0, signal: null }, child.stderr)
    assert.ok(now() - at < 500, `${now() - at} ms`)
  })

  const login = `app:${SECRET}`
  const user = { name: 'app', password: SECRET, rules: '~* &* +@all' }
  for (const [what, refuse, mend] of [
    ['the right to run scripts', [['ACL', 'SETUSER', 'app', '-evalsha']], [['ACL', 'SETUSER', 'app', '+evalsha']]],
    ['the right to the key', [['ACL', 'SETUSER', 'app', 'resetkeys']], [['ACL', 'SETUSER', 'app', '~*']]],
    [
      'a valid password',
      [
        ['ACL', 'SETUSER', 'app', 'resetpass', '>another'],
        ['CLIENT', 'KILL', 'USER', 'app'],
      ],
      [['ACL', 'SETUSER', 'app', `>${SECRET}`]],
    ],
    ['the role of a master', [['REPLICAOF', '127.0.0.1', 1]], [['REPLICAOF', 'NO', 'ONE']]],
    ['a replica', [['CONFIG', 'SET', 'min-replicas-to-write', 1]], [['CONFIG', 'SET', 'min-replicas-to-write', 0]]],
  ]) {
    test(`a release that was refused because ${what} is missing is repeated`, async (t) => {
      const server = await startRedis(t, { user })
      const locks = clientOf(t, server.url(login))
      const key = randomUUID()
      const lease = await locks.acquire(key, { ttl: 30_000 })
      for (const words of refuse) await server.ask(...words)
      await assert.rejects(lease.release(), { name: 'StoreUnavailableError' })
      await sleep(700)
      assert.equal(await server.ask('EXISTS', `lock:${key}`), 1)
      for (const words of mend) await server.ask(...words)
      const ms = await untilFree(server, key)
      assert.ok(ms < SOON, `free ${ms.toFixed(0)} ms after the cause was removed`)
      t.diagnostic(`free ${ms.toFixed(0)} ms after the cause was removed`)
    })
  }
})
