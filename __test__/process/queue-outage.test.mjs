// Waiters keep their order while connections break. No waiter is forgotten or served twice, and a
// waiter that is back soon is served in its turn. The store passes over waiters that it can't
// notify for longer, so on a slow machine a few may come later.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, until } from '../support/clock.mjs'
import { assertInOrder, lineUp, passed, settled, startParties, told, upTo } from '../support/crowd.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

const COUNT = 100

/** Ends the connections of all other clients. Returns their number. */
async function cut(command) {
  const killed = []
  for (const type of ['normal', 'pubsub']) killed.push(await command('CLIENT', 'KILL', 'TYPE', type))
  return killed.reduce((sum, count) => sum + count)
}

function assertFewPassed(t, events) {
  const count = passed(events, COUNT)
  t.diagnostic(`${count} of ${COUNT} were served after a later waiter`)
  assert.ok(count <= COUNT / 20, `${count} were`)
}

describe('queue: connections cut', { timeout: 240_000 }, () => {
  const setUp = async (t) => {
    const server = await startRedis(t)
    const command = await server.command()
    atEnd(t, () => command.close())
    const parties = await startParties(t, 'redis', server.url(), 2, { handOffs: 0 })
    const locks = createLockClient({ store: server.url() })
    atEnd(t, () => locks.close())
    const key = randomUUID()
    const lease = await locks.acquire(key)
    return { command, parties, locks, key, lease }
  }

  test('after a cut, 100 waiters are served in order, and each once', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await lineUp(locks, parties, key, COUNT, { wait: 60_000 })
    assert.ok((await cut(command)) >= 3, 'both processes and this one were connected')
    // If the release meets the cut, it rejects, and the client repeats it.
    await lease.release().catch((error) => assert.equal(error.code, 'ERR_STORE_UNAVAILABLE'))
    assertInOrder(await settled(locks, parties, key, COUNT), upTo(COUNT))
  })

  test('during many cuts, 100 waiters are served in order, and each once', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await lineUp(locks, parties, key, COUNT, { wait: 60_000, hold: 5 })
    const start = now()
    await lease.release()
    let cuts = 0
    for (let next = 10; next < COUNT; next += 20) {
      await until(`${next} to be served`, () => told(parties, key).length >= next)
      cuts += await cut(command)
    }
    const events = await settled(locks, parties, key, COUNT)
    t.diagnostic(`${cuts} connections cut, ${COUNT} served in ${(now() - start).toFixed(0)} ms`)
    assertFewPassed(t, events)
  })

  test('waiters whose wait is over get LockTimeoutError and leave the queue', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await parties[0].join(
      Array.from({ length: 50 }, (_, i) => i),
      key,
      { wait: 1_500 },
    )
    await cut(command)
    await until('all waiters to fail', () => told(parties, key).length === 50)
    const events = told(parties, key)
    assert.ok(
      events.every(({ event, error }) => event === 'failed' && error.code === 'ERR_LOCK_TIMEOUT'),
      JSON.stringify(events.find(({ error }) => error?.code !== 'ERR_LOCK_TIMEOUT')),
    )
    await until('the queue to be empty', async () => (await locks.inspect(key))?.waiters.length === 0)
    assert.equal(lease.isHeld, true)
    assert.equal(await lease.release(), true)
  })
})
