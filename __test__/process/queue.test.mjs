// First come, first served: waiters are served in arrival order. The cost at the store does not
// depend on their number.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, sleep, until } from '../support/clock.mjs'
import {
  assertInOrder,
  disorder,
  lineUp,
  passed,
  queued,
  settled,
  startParties,
  told,
  upTo,
} from '../support/crowd.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

const clientOf = (t, store, options = {}) => {
  const locks = createLockClient({ store, ...options })
  atEnd(t, () => locks.close())
  return locks
}

for (const name of storeNames) {
  describe(`queue: ${name}`, { timeout: 240_000 }, () => {
    test('200 waiters of 4 processes are served exactly in the order of their arrival', async (t) => {
      const store = await openStore(name, t)
      const parties = await startParties(t, name, store, 4, { handOffs: 0 })
      const locks = clientOf(t, store)
      const key = randomUUID()
      const lease = await locks.acquire(key)
      await lineUp(locks, parties, key, 200)
      const start = now()
      await lease.release()
      const events = await settled(locks, parties, key, 200)
      t.diagnostic(`200 hand-overs in ${(now() - start).toFixed(0)} ms`)
      assertInOrder(events, upTo(200))
      assert.ok(
        events.every(({ fence }) => fence > lease.fence),
        'all fences are larger than the first',
      )
    })

    test('waiters that give up neither delay the others nor leave a lease', async (t) => {
      const store = await openStore(name, t)
      const locks = clientOf(t, store, { handOffs: 0 })
      const key = randomUUID()
      const lease = await locks.acquire(key)
      const served = []
      const waits = []
      for (let id = 0; id < 20; id++) {
        const controller = new AbortController()
        const wait = locks
          .acquire(key, { wait: 60_000, signal: controller.signal })
          .then(async (mine) => {
            served.push(id)
            await mine.release()
          })
          .catch((error) => error.code)
        waits.push({ controller, wait })
        await queued(locks, key, id + 1)
      }
      for (const { controller } of waits.filter((_, id) => id % 2 === 0)) controller.abort()
      await queued(locks, key, 10)
      await lease.release()
      const outcomes = await Promise.all(waits.map(({ wait }) => wait))
      assert.deepEqual(
        served,
        Array.from({ length: 10 }, (_, i) => 2 * i + 1),
      )
      assert.ok(outcomes.every((outcome, id) => outcome === (id % 2 ? undefined : 'ERR_LOCK_ABORTED')))
      assert.equal(await locks.inspect(key), null)
    })
  })
}

describe('queue: its cost', { timeout: 240_000 }, () => {
  /** Returns how often each command was called since CONFIG RESETSTAT. */
  async function commandCalls(command) {
    const calls = {}
    for (const [, words, count] of (await command('INFO', 'commandstats')).matchAll(/^cmdstat_([^:]+):calls=(\d+)/gm)) {
      calls[words] = Number(count)
    }
    return calls
  }

  test('a hand-over takes as many Redis commands with 200 waiters as with 2', async (t) => {
    const server = await startRedis(t)
    const command = await server.command()
    atEnd(t, () => command.close())
    const parties = await startParties(t, 'redis', server.url(), 2, { handOffs: 0 })
    const locks = clientOf(t, server.url())
    const rows = {}
    for (const count of [2, 20, 200]) {
      const key = randomUUID()
      const lease = await locks.acquire(key)
      for (const [i, party] of parties.entries()) {
        const ids = Array.from({ length: count / 2 }, (_, j) => i * (count / 2) + j)
        await party.join(ids, key, {})
      }
      await queued(locks, key, count)
      await command('CONFIG', 'RESETSTAT')
      const start = now()
      await lease.release()
      await until('all waiters to be served', () => told(parties, key).length === count)
      await until('the last release', async () => (await command('EXISTS', `lock:${key}`)) === 0)
      const ms = now() - start
      const events = told(parties, key)
      const calls = await commandCalls(command)
      assert.ok(events.every(({ event }) => event === 'served'))
      const { evalsha = 0, fcall = 0, publish = 0, spublish = 0 } = calls
      const asked = evalsha + fcall
      const sent = publish + spublish
      // Waiters also poll from time to time, depending on time alone.
      const polls = (count * ms) / 500
      rows[count] = { ms: Math.round(ms), asked, sent, 'asked per hand-over': (asked / count).toFixed(2) }
      // One request takes up the lease and one releases it, and there are a few for the first and
      // the last waiter.
      assert.ok(asked >= count, `${count} wait: ${JSON.stringify(calls)}`)
      assert.ok(asked <= 2.2 * count + polls + 10, `${count} wait: ${asked} requests, ${polls} polls are allowed`)
      assert.ok(sent <= count, `${count} wait: ${sent} messages, one for each hand-over at most`)
    }
    t.diagnostic(JSON.stringify(rows))
  })

  test('if a foreign SET NX PX holder deletes its key, the waiters notice within a second', async (t) => {
    const server = await startRedis(t)
    const command = await server.command()
    atEnd(t, () => command.close())
    const locks = clientOf(t, server.url())
    const late = []
    for (let i = 0; i < 5; i++) {
      const key = randomUUID()
      assert.equal(await command('SET', `lock:${key}`, 'foreign', 'NX', 'PX', 60_000), 'OK')
      const waiting = locks.acquire(key, { wait: 20_000 })
      await queued(locks, key, 1)
      assert.equal((await locks.inspect(key)).holder, null)
      // At any time between two polls.
      await sleep(i * 130)
      const start = now()
      assert.equal(await command('DEL', `lock:${key}`), 1)
      const lease = await waiting
      late.push(Math.round(now() - start))
      assert.ok(now() - start <= 1_000, `noticed after ${now() - start} ms`)
      assert.equal(await command('SET', `lock:${key}`, 'foreign', 'NX', 'PX', 60_000), null)
      await lease.release()
    }
    t.diagnostic(`noticed after ${late.join(', ')} ms`)
  })
})

test('disorder() finds each fault in the order of a queue', () => {
  const event = (id, at = id) => ({ event: 'served', id, fence: 100 + at, at })
  assert.equal(disorder([event(1), event(0), event(2)], upTo(3)), undefined, 'disorder() sorts the events')
  assert.match(disorder([event(0), event(1, 2), event(2, 1)], upTo(3)), /by fence, 2 came as number 1/)
  assert.match(disorder([event(0), { ...event(1), at: 3 }, event(2)], upTo(3)), /by at, 2 came as number 1/)
  assert.match(disorder([event(0), event(1), event(1)], upTo(3)), /came as number 2/)
  assert.match(disorder([event(0), { ...event(1), fence: 100 }], upTo(2)), /twice/)
  assert.match(disorder([event(0), event(1)], upTo(3)), /2 of 3/)
  assert.equal(disorder([event(1), event(3)], [1, 3]), undefined)
  assert.match(disorder([event(0), { event: 'failed', id: 1 }], upTo(2)), /not all waiters/)
  assert.equal(passed([event(0), event(1), event(2)], 3), 0)
  assert.equal(passed([event(0, 2), event(1, 1), event(2, 0)], 3), 2)
  assert.throws(() => passed([event(0), event(1), event(1)], 3))
  assert.throws(() => passed([event(0), { event: 'failed', id: 1 }], 2))
})
