// Nothing piles up, however often the store fails. (The long run is PAIRS=10000000 node
// __test__/soak.mjs faults.)

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { soakThroughFaults } from '../support/chaos/soak.mjs'

/**
 * The arguments of the run. A short run can't see a small leak of memory, because memory still
 * grows for other reasons.
 */
const RUN = process.env.LEASEHOLD_TEST_LONG
  ? { leases: 400_000, warmUp: 600_000, rss: 12 }
  : { leases: 80_000, warmUp: 80_000, rss: 30 }

describe('chaos: soak', { timeout: 240_000 }, () => {
  test('memory, files, threads, handles and keys have not grown after a fault every second', async (t) => {
    const { rows, grown, faults, seconds } = await soakThroughFaults(t, RUN)
    t.diagnostic(`${RUN.leases.toLocaleString('en')} leases in ${seconds.toFixed(1)} s, ${faults} faults`)
    t.diagnostic(`before ${JSON.stringify(rows.before)}`)
    t.diagnostic(`after  ${JSON.stringify(rows.after)}`)
    assert.ok(faults > 1)
    assert.deepEqual(grown, [])
  })
})
