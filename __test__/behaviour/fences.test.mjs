// Fences stay at the wall clock. A store that lost its data continues at the clock, and must not
// grant a fence twice.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { overStores } from '../support/stores.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 1)
/** The largest lead of a fence over the clock, in µs. A process reserves 64 fences at a time. */
const MOST_AHEAD = 1_000
/** A busy machine goes on until there were more than this, so that each run proves something. */
const FEWEST = { leases: 1_000, breaks: 300, leasesBetween: 100 }

/** Returns an instant no earlier than the wall clock, in µs since 1970. */
const wallMicros = () => (Date.now() + 1) * 1_000

/**
 * Lets contenders of several clients acquire each of `keys` locks, so that leases are handed on
 * within a client and between clients. Returns by how many µs a fence was ahead of the wall clock
 * at most, and the number of leases.
 */
async function compete(t, store, { keys, contenders, clients: count }) {
  const clients = Array.from({ length: count }, () => store.client(t))
  const end = performance.now() + SECONDS * 1_000
  let [ahead, grants] = [Number.NEGATIVE_INFINITY, 0]
  const contend = async (locks, key) => {
    while (performance.now() < end || grants <= FEWEST.leases) {
      const lease = await locks.acquire(key, { wait: 60_000 })
      ahead = Math.max(ahead, lease.fence - wallMicros())
      grants++
      await lease.release()
    }
  }
  const names = Array.from({ length: keys }, () => store.key())
  const all = names.flatMap((key) => Array.from({ length: contenders }, (_, i) => contend(clients[i % count], key)))
  await Promise.all(all)
  return { ahead: Math.round(ahead), grants }
}

/**
 * Breaks one lock again and again while contenders of several clients acquire it in turn. Returns
 * by how many µs a fence was ahead of the wall clock at most, the number of breaks, and the number
 * of leases.
 */
async function breakOften(t, store, { clients: count, breakers }) {
  const clients = Array.from({ length: count }, () => store.client(t))
  const [key, end] = [store.key(), performance.now() + SECONDS * 1_000]
  let [ahead, breaks, grants] = [Number.NEGATIVE_INFINITY, 0, 0]
  const goesOn = () => performance.now() < end || breaks <= FEWEST.breaks || grants <= FEWEST.leasesBetween
  const contend = async (locks) => {
    while (goesOn()) {
      // The lease may be lost before it is handed over.
      const lease = await locks.acquire(key, { wait: 60_000 }).catch(() => null)
      if (lease === null) continue
      ahead = Math.max(ahead, lease.fence - wallMicros())
      grants++
      await lease.release()
    }
  }
  const breakAll = async (locks) => {
    for (; goesOn(); breaks++) await locks.forceRelease(key)
  }
  const contenders = Array.from({ length: 8 * count }, (_, i) => contend(clients[i % count]))
  await Promise.all([...contenders, ...Array.from({ length: breakers }, () => breakAll(clients[0]))])
  return { ahead: Math.round(ahead), breaks, grants }
}

overStores('fences stay at the clock', (store) => {
  for (const [title, load] of [
    ['fences of 64 keys that 8 clients hand over stay at the clock', { keys: 64, contenders: 8, clients: 8 }],
    ['fences of 64 keys that 2 clients hand on and over stay at the clock', { keys: 64, contenders: 4, clients: 2 }],
    ['fences of one key that is handed on in blocks stay at the clock', { keys: 1, contenders: 32, clients: 2 }],
    ['fences of 64 keys without contention stay at the clock', { keys: 64, contenders: 1, clients: 1 }],
  ]) {
    test(title, async (t) => {
      const { ahead, grants } = await compete(t, store, load)
      t.diagnostic(`${grants} leases, at most ${ahead} µs ahead`)
      assert.ok(ahead <= MOST_AHEAD, `${ahead} µs ahead of the clock after ${grants} leases`)
    })
  }

  const breakLoads = [
    { clients: 4, breakers: 1 },
    { clients: 16, breakers: 16 },
  ]
  for (const load of breakLoads) {
    const { clients, breakers } = load
    // A Redis server does not limit breaks in one pipeline.
    if (breakers > 1 && store.name.startsWith('redis')) continue
    test(`fences stay at the clock while ${breakers} callers repeat forceRelease() and ${clients} clients wait`, async (t) => {
      const { ahead, breaks, grants } = await breakOften(t, store, load)
      t.diagnostic(`${breaks} breaks, ${grants} leases, at most ${ahead} µs ahead`)
      // All breakers may break the lock at the same time, and each may lose two reservations of 64
      // fences.
      const most = MOST_AHEAD + breakers * 2 * 64
      assert.ok(ahead <= most, `${ahead} µs ahead of the clock after ${breaks} breaks`)
    })
  }
})
