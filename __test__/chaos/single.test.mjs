// One Redis that keeps its data is killed, frozen and cut off at random under load: no overlap, fences only grow, every loss
// is told, and work goes on soon after each heal.

import { describe, test } from 'node:test'
import { startCrew } from '../support/chaos/crew.mjs'
import { cut, deaf, dropped, frozen, killed, mute, silent, slow } from '../support/chaos/faults.mjs'
import { assertBack, assertSafe, tell, weather } from '../support/chaos/scenario.mjs'
import { startMasters } from '../support/masters.mjs'
import { randomFrom } from '../support/random.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 12)

describe('chaos: one Redis', { timeout: SECONDS * 2_000 + 120_000 }, () => {
  test('killed, frozen, cut off, deaf and mute at random: safe, and soon back', async (t) => {
    const random = randomFrom(t)
    const nodes = await startMasters(t, 1, { keep: true })
    const crew = await startCrew(t, { store: nodes[0].url, contenders: 4, client: { storeTimeout: 250 } })
    const faults = [killed, frozen, cut, dropped, silent, deaf, mute, slow]
    const storm = { nodes, faults, random, seconds: SECONDS, every: 2_000, atMost: 1, least: 100, most: 800 }
    const result = await weather(crew, storm, { limit: 1_000, exclusive: true })
    tell(t, result)
    assertSafe(result)
    assertBack(result, 1_000)
  })
})
