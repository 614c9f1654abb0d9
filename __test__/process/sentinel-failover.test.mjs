// Processes that run during a planned failover, or start during one. No lease that is granted
// during the failover is lost, and locks are available again soon.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { now, sleep } from '../support/clock.mjs'
import { startSentinels } from '../support/sentinel.mjs'
import { streamThrough } from '../support/stream.mjs'

/**
 * Returns how long a lock may be out of service, in ms: the time that the sentinels need, which is
 * 1.0 to 1.3 s, and one more second for a busy machine.
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
        `failover ${outcome.ms.toFixed(0)} ms; ${overlaps.length} overlaps of up to ${worst.toFixed(0)} ms in ${tenures} leases; ` +
          `a contended lock was out of service for ${pause.toFixed(0)} ms, new ones for ${gap.toFixed(0)} ms`,
      )
      assert.deepEqual(overlaps, [])
      assert.deepEqual(wrong, [])
      const most = outOfService(outcome)
      assert.ok(pause < most, `a contended lock was out of service for ${pause} ms`)
      assert.ok(gap < most, `no new lock was granted for ${gap} ms`)
    })
  }

  for (const which of ['all sentinels in the URL', 'one sentinel in the URL, which does not lead the failover']) {
    test(`a process that starts during the failover gets no lease at the old master, ${which}`, async (t) => {
      const system = await startSentinels(t)
      const one = `redis-sentinel://127.0.0.1:${system.sentinels[1].port}/leasehold`
      const settings = { store: which.startsWith('all') ? system.url() : one, client: { minReplicas: 1 }, hold: 3_000 }
      const children = Array.from({ length: 20 }, (_, i) =>
        startChild(t, 'newcomer.mjs', { ...settings, key: `new:${i}` }),
      )
      await Promise.all(children.map((child) => child.next('ready')))
      // These processes start while the failover runs, one every 40 ms.
      let tenures
      const { ms, begun } = await new Promise((resolve, reject) => {
        let begun
        const start = async (child, i) => {
          await sleep(i * 40)
          return child.ask('go', {}, 60_000)
        }
        const ended = system.failOver(() => {
          begun = now()
          tenures = Promise.all(children.map(start))
        })
        ended.then(({ ms }) => resolve({ ms, begun }), reject)
      })
      const switched = now()
      const told = await tenures
      const during = told.filter(({ asked }) => asked < switched)
      const lost = told.filter(({ lost }) => lost)
      t.diagnostic(
        `failover ${ms.toFixed(0)} ms; ${during.length} processes started meanwhile; ${lost.length} of ${told.length} leases were lost`,
      )
      assert.ok(during.length >= 5, `only ${during.length} processes started in ${switched - begun} ms`)
      assert.deepEqual(lost, [])
      assert.deepEqual(
        told.flatMap(({ error }) => error ?? []),
        [],
      )
    })
  }

  test('a client that loses its subscription just before the failover subscribes again in time', async (t) => {
    const system = await startSentinels(t)
    const settings = { store: system.url(), client: { minReplicas: 1 }, count: 400 }
    const { outcome, overlaps, worst, tenures, wrong } = await streamThrough(t, settings, async () => {
      const killed = await system.sentinels[0].ask('CLIENT', 'KILL', 'TYPE', 'pubsub')
      assert.equal(killed, 2, 'one subscription of each client')
      return system.failOver()
    })
    t.diagnostic(
      `failover ${outcome.ms.toFixed(0)} ms; ${overlaps.length} overlaps of up to ${worst.toFixed(0)} ms in ${tenures} leases`,
    )
    assert.deepEqual(overlaps, [])
    assert.deepEqual(wrong, [])
  })
})
