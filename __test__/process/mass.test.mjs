// Thousands of leases are lost or granted at once. The client delivers the events in slices, and
// other events of the process run in between.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'

/**
 * How many records a slice has at most, and how long, in ms, it takes at most and others may follow
 * it in a turn of the event loop; see lib/native/records.ts.
 */
const SLICE = { records: 256, time: 5 }
const KEYS = (count) => Array.from({ length: count }, (_, i) => `k${i}`)

/** Blocks this thread for `ms`. */
function spin(ms) {
  const end = now() + ms
  while (now() < end);
}

/** Counts how many times it is called in each turn of the event loop. */
function turnsOf(t) {
  const turns = [0]
  let timer
  const next = () => {
    if (turns.at(-1) > 0) turns.push(0)
    timer = setImmediate(next)
  }
  next()
  atEnd(t, () => clearImmediate(timer))
  return { count: () => turns[turns.length - 1]++, most: () => Math.max(...turns), turns }
}

describe('many leases at once', { skip: !storeNames.includes('redis'), timeout: 120_000 }, () => {
  const start = async (t) => {
    const server = await startRedis(t)
    const locks = createLockClient({ store: server.url(), storeTimeout: 500 })
    atEnd(t, () => locks.close())
    locks.on('error', () => {})
    return { server, locks }
  }

  test('a turn of the event loop delivers as many losses as fit into 5 ms', async (t) => {
    const { server, locks } = await start(t)
    const leases = await Promise.all(KEYS(600).map((key) => locks.acquire(key, { ttl: 1_500 })))
    const { count, most } = turnsOf(t)
    let lost = 0
    let undelivered = 0
    locks.on('lost', () => {
      count()
      lost++
      // A lease is lost when its time is over, even if its event is still to come.
      if (lost < leases.length && leases.every(({ remaining }) => remaining === 0)) {
        undelivered++
        assert.ok(leases.every(({ isHeld }) => !isHeld))
      }
      spin(1)
    })
    server.freeze()
    await until('all to be lost', () => lost === leases.length)
    t.diagnostic(`at most ${most()} in a turn`)
    // The last listener may begin just before the slice ends.
    assert.ok(most() <= SLICE.time + 1, `${most()} in a turn`)
    assert.ok(undelivered > 0)
    assert.ok(leases.every(({ isHeld }) => !isHeld))
  })

  test('losses of leases with a signal are delivered in slices, too', async (t) => {
    const { server, locks } = await start(t)
    const leases = await Promise.all(KEYS(2_000).map((key) => locks.acquire(key, { ttl: 1_500 })))
    const { count, most } = turnsOf(t)
    let lost = 0
    for (const { signal } of leases) {
      signal.addEventListener('abort', () => {
        count()
        lost++
        assert.equal(signal.reason.code, 'ERR_LOCK_LOST')
      })
    }
    server.freeze()
    await until('all to be lost', () => lost === leases.length)
    assert.ok(most() <= SLICE.records, `${most()} in a turn`)
  })

  test('grants that came while the thread was busy are delivered at most 256 in a turn', async (t) => {
    const { locks } = await start(t)
    await locks.ready()
    const { count, most, turns } = turnsOf(t)
    const asked = KEYS(3_000).map((key) => locks.acquire(key).then(count))
    // All leases are granted while this thread is busy.
    spin(1)
    await sleep(0)
    spin(1_000)
    await Promise.all(asked)
    t.diagnostic(`${turns.length} turns, at most ${most()} in one`)
    assert.ok(most() <= SLICE.records, `${most()} in a turn`)
  })

  // Native code wakes this thread again in the turn in which it delivered the rest of a slice.
  test('a turn begins no slice more than 5 ms after its first one', async (t) => {
    const { locks } = await start(t)
    await locks.ready()
    const { count, most } = turnsOf(t)
    let granted = 0
    const work = 0.06
    const acquireAgain = async (key) => {
      while (granted < 20_000) {
        const lease = await locks.acquire(key)
        granted++
        count()
        spin(work)
        lease.release()
      }
    }
    await Promise.all(KEYS(400).map(acquireAgain))
    t.diagnostic(`at most ${most()} in a turn`)
    assert.ok(most() <= SLICE.time / work + SLICE.records, `${most()} in a turn`)
  })
})
