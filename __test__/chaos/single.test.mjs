// One Redis that keeps its data is killed, frozen and cut off at random under load: no overlap, fences only grow, every loss
// is told, and work goes on soon after each heal.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startCrew } from '../support/chaos/crew.mjs'
import { cut, deaf, dropped, flushed, frozen, killed, mute, paused, silent, slow } from '../support/chaos/faults.mjs'
import { longestGap } from '../support/chaos/recovery.mjs'
import { assertBack, assertSafe, assertTold, tell, weather } from '../support/chaos/scenario.mjs'
import { startMasters } from '../support/masters.mjs'
import { randomFrom } from '../support/random.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 10)

describe('chaos: one Redis', { timeout: SECONDS * 2_000 + 120_000 }, () => {
  test('killed, frozen, cut off, deaf and mute at random: safe, and soon back', async (t) => {
    const random = randomFrom(t)
    const nodes = await startMasters(t, 1, { keep: true })
    const crew = await startCrew(t, { store: nodes[0].url, contenders: 4, client: { storeTimeout: 250 } })
    const faults = [killed, frozen, cut, dropped, silent, deaf, mute, slow]
    // Some outages are longer than a ttl: then leases are lost.
    const storm = { nodes, faults, random, seconds: SECONDS, every: 2_500, atMost: 1, least: 100, most: 1_500 }
    const result = await weather(crew, storm, { limit: 1_000, exclusive: true })
    tell(t, result)
    assertSafe(result)
    assertBack(result, 1_000)
  })
  test('holders stand still at random, past their ttl: nobody else suffers, and no stale write is accepted', async (t) => {
    const random = randomFrom(t)
    const [{ url }] = await startMasters(t, 1)
    const crew = await startCrew(t, { store: url, contenders: 4 })
    const nodes = crew.processes.map((child, i) => ({ name: `process ${i}`, child }))
    const times = { seconds: SECONDS / 2, every: 1_500, least: 100, most: 2_000 }
    const result = await weather(crew, { nodes, faults: [paused], random, atMost: 1, ...times })
    tell(t, result)
    assertSafe(result, { overrun: 2_500 })
    // Whoever stands still has each lock for a ttl at most; then somebody else may do the same.
    const longest = longestGap(result.rates)
    t.diagnostic(`the longest without a tenure: ${longest} ms`)
    assert.ok(longest < 2_500, `nobody got in for ${longest} ms`)
  })

  test('a Redis that forgets what it has granted is found out, and its fences still protect the storage', async (t) => {
    const random = randomFrom(t)
    const nodes = await startMasters(t, 1)
    // The holder of the long lock learns of it at its next renewal, a third of this later; who waits, before.
    const crew = await startCrew(t, { store: nodes[0].url, contenders: 4, ttl: 3_000, wait: 10_000 })
    const storm = { nodes, faults: [flushed], random, seconds: 5, every: 1_000, atMost: 1, least: 1, most: 2 }
    const result = await weather(crew, storm)
    tell(t, result)
    assertTold(result)
    assert.ok(result.counts.lost > 0, 'the losses are told')
    assert.ok(result.overlapCount > 0, 'these tests can find an overlap where there is one')
  })
})
