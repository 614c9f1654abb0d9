// One Redis that keeps its data is killed, frozen and cut off at random under load. No leases
// overlap, fences only grow, every loss is reported, and work continues soon after each heal.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { cut, deaf, dropped, flushed, frozen, killed, mute, paused, silent, slow } from '../support/chaos/faults.mjs'
import { longestGap } from '../support/chaos/recovery.mjs'
import { assertBack, assertReported, assertSafe, disturbAtRandom, printFigures } from '../support/chaos/scenario.mjs'
import { startWorkload } from '../support/chaos/workload.mjs'
import { startMasters } from '../support/masters.mjs'
import { randomFrom } from '../support/random.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 4)

describe('chaos: one Redis', { timeout: SECONDS * 2_000 + 120_000 }, () => {
  test('while Redis is killed, frozen, cut off, deaf or mute at random, no leases overlap, and service is back within 1 s', async (t) => {
    const random = randomFrom(t)
    const nodes = await startMasters(t, 1, { keep: true })
    const workload = await startWorkload(t, { store: nodes[0].url, contenders: 4, client: { storeTimeout: 250 } })
    const faults = [killed, frozen, cut, dropped, silent, deaf, mute, slow]
    // Some outages are longer than a ttl, so some leases are lost.
    const plan = { nodes, faults, random, seconds: SECONDS, every: 2_500, atMost: 1, least: 100, most: 1_500 }
    const result = await disturbAtRandom(workload, plan, { limit: 1_000, exclusive: true })
    printFigures(t, result)
    assertSafe(result)
    assertBack(result, 1_000)
  })
  test('if holders stand still at random, past their ttl, the others still get the lock, and no stale write is accepted', async (t) => {
    const random = randomFrom(t)
    const [{ url }] = await startMasters(t, 1)
    const workload = await startWorkload(t, { store: url, contenders: 4 })
    const nodes = workload.processes.map((child, i) => ({ name: `process ${i}`, child }))
    const times = { seconds: SECONDS / 2, every: 1_500, least: 100, most: 2_000 }
    const result = await disturbAtRandom(workload, { nodes, faults: [paused], random, atMost: 1, ...times })
    printFigures(t, result)
    assertSafe(result, { overrun: 2_500 })
    // A process that stands still keeps each lock for a ttl at most. Then another one may do the
    // same.
    const longest = longestGap(result.rates)
    t.diagnostic(`the longest time without a lease: ${longest} ms`)
    assert.ok(longest < 2_500, `no lease was granted for ${longest} ms`)
  })

  test('if Redis forgets its leases, their loss is reported, and fences still protect the storage', async (t) => {
    const random = randomFrom(t)
    const nodes = await startMasters(t, 1)
    // The holder of the long lock learns of the loss at its next renewal, a third of the ttl later.
    // Waiters learn of it earlier.
    const workload = await startWorkload(t, { store: nodes[0].url, contenders: 4, ttl: 3_000, wait: 10_000 })
    const plan = { nodes, faults: [flushed], random, seconds: 5, every: 1_000, atMost: 1, least: 1, most: 2 }
    const result = await disturbAtRandom(workload, plan)
    printFigures(t, result)
    assertReported(result)
    assert.ok(result.counts.lost > 0, 'no loss was reported')
    assert.ok(result.overlapCount > 0, 'the checks found no overlap, though Redis forgot its leases')
  })
})
