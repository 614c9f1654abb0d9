// Two processes see a planned failover: no lease that is granted meanwhile is lost, and locks are
// available again soon.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startSentinels } from '../support/sentinel.mjs'
import { streamThrough } from '../support/stream.mjs'

/**
 * Returns how long a lock may be out of service, ms: the time of the sentinels themselves, which is
 * 1.0 to 1.3 s, and one second more for a busy machine.
 */
const outOfService = ({ ms }) => ms + 1_000

describe('process: planned failover', { timeout: 120_000 }, () => {
  for (const { minReplicas, count, which } of [
    { minReplicas: 1, count: 2, which: 'all sentinels in the URL' },
    { minReplicas: 2, count: 3, which: 'one sentinel in the URL, which does not lead the failover' },
  ]) {
    test(`minReplicas ${minReplicas} of ${count}, ${which}: no lock is held twice, and each is available again soon`, async (t) => {
      const system = await startSentinels(t, { count })
      const one = `redis-sentinel://127.0.0.1:${system.sentinels[1].port}/leasehold`
      const store = minReplicas === 1 ? system.url() : one
      const settings = { store, client: { minReplicas }, count: 400 }
      const { outcome, overlaps, worst, pause, gap, tenures, wrong } = await streamThrough(t, settings, () =>
        system.failOver(),
      )
      t.diagnostic(
        `failover ${outcome.ms.toFixed(0)} ms; ${overlaps.length} overlaps of up to ${worst.toFixed(0)} ms in ${tenures} tenures; ` +
          `a contended lock was out of service for ${pause.toFixed(0)} ms, new ones for ${gap.toFixed(0)} ms`,
      )
      assert.deepEqual(overlaps, [])
      assert.deepEqual(wrong, [])
      const most = outOfService(outcome)
      assert.ok(pause < most, `a contended lock was out of service for ${pause} ms`)
      assert.ok(gap < most, `no new lock was granted for ${gap} ms`)
    })
  }
})
