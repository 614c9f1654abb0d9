// Promises 5 and 8 while connections break: nobody who waits is forgotten or served twice. The store passes over a process
// as long as it is not connected, so others may come before it then; but its own are served in their order.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, until } from '../support/clock.mjs'
import { assertInOrderOfEachParty, lineUp, settled, startParties, told } from '../support/crowd.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

const COUNT = 100

/** Ends the connections of everyone else. Returns how many there were. */
async function cut(command) {
  const killed = []
  for (const type of ['normal', 'pubsub']) killed.push(await command('CLIENT', 'KILL', 'TYPE', type))
  return killed.reduce((sum, count) => sum + count)
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

  test('while 100 wait: all are served once it is back, in the order of each process, none twice', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await lineUp(locks, parties, key, COUNT, { wait: 60_000 })
    assert.ok((await cut(command)) >= 3, 'both processes and this one were connected')
    await lease.release()
    await settled(parties, key, COUNT)
    t.diagnostic(`${assertInOrderOfEachParty(parties, key, COUNT)} were passed by those who were back earlier`)
    assert.equal(await locks.inspect(key), null)
  })

  test('again and again while 100 are served one after the other: the same', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await lineUp(locks, parties, key, COUNT, { wait: 60_000, hold: 5 })
    const start = now()
    await lease.release()
    let cuts = 0
    for (let next = 10; next < COUNT; next += 20) {
      await until(`${next} to be served`, () => told(parties, key).length >= next)
      cuts += await cut(command)
    }
    await settled(parties, key, COUNT)
    t.diagnostic(`${cuts} connections cut, ${COUNT} served in ${(now() - start).toFixed(0)} ms`)
    t.diagnostic(`${assertInOrderOfEachParty(parties, key, COUNT)} were passed by those who were back earlier`)
  })

  test('those who are still waiting when their time is over are told so, and leave the queue', async (t) => {
    const { command, parties, locks, key, lease } = await setUp(t)
    await parties[0].join(
      Array.from({ length: 50 }, (_, i) => i),
      key,
      { wait: 1_500 },
    )
    await cut(command)
    const events = await settled(parties, key, 50)
    assert.ok(
      events.every(({ event, error }) => event === 'failed' && error.code === 'ERR_LOCK_TIMEOUT'),
      JSON.stringify(events.find(({ error }) => error?.code !== 'ERR_LOCK_TIMEOUT')),
    )
    await until('the queue to be empty', async () => (await locks.inspect(key))?.waiters.length === 0)
    assert.equal(lease.isHeld, true)
    assert.equal(await lease.release(), true)
  })
})
