// A quorum of five masters. Any two of them are broken at random every second: no leases overlap,
// fences only grow, every loss is reported, and work continues. While three masters are down, no
// lease is granted, and every acquire fails in time.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { cut, deaf, emptied, frozen, killed, mute, silent } from '../support/chaos/faults.mjs'
import { notYet } from '../support/chaos/offered.mjs'
import { assertBack, assertSafe, disturbAtRandom, printFigures } from '../support/chaos/scenario.mjs'
import { startWorkload } from '../support/chaos/workload.mjs'
import { startMasters } from '../support/masters.mjs'
import { randomFrom } from '../support/random.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 3)
const TTL = 1_000
const STORE_TIMEOUT = 250
const skip = notYet([1, 2, 3].map((port) => `redis://127.0.0.1:${port}`))

/** Starts five masters, and 3 processes with 8 contenders each. */
async function setUp(t) {
  // A quorum needs servers that keep their leases after a crash.
  const nodes = await startMasters(t, 5, { keep: true })
  const store = nodes.map(({ url }) => url)
  const workload = await startWorkload(t, { store, contenders: 8, ttl: TTL, client: { storeTimeout: STORE_TIMEOUT } })
  return { nodes, workload }
}

describe('chaos: a quorum of five', { skip, timeout: SECONDS * 4_000 + 180_000 }, () => {
  for (const [what, faults] of [
    ['killed and restarted with its data, frozen or cut off', [killed, frozen, cut, silent, deaf, mute]],
    ['killed and back empty after one ttl, frozen or cut off', [emptied(TTL), frozen, cut, silent]],
  ]) {
    test(`with any two ${what}, no leases overlap, and service is back within 1 s`, async (t) => {
      const random = randomFrom(t)
      const { nodes, workload } = await setUp(t)
      const plan = { nodes, faults, random, seconds: SECONDS, every: 1_000, atMost: 2, least: 200, most: 900 }
      // Two of five never stop the work, so service must be back after every heal.
      const result = await disturbAtRandom(workload, plan, { limit: 1_000, exclusive: false })
      printFigures(t, result)
      assertSafe(result)
      assertBack(result, 1_000)
    })
  }

  for (const { name, begin, heal } of [killed, frozen, cut]) {
    test(`with three ${name}, every acquire ends in time with a QuorumError, and work continues when they are back`, async (t) => {
      const { nodes, workload } = await setUp(t)
      const down = nodes.slice(1, 4)
      await Promise.all(down.map(begin))
      const wait = 1_500
      const { waited, tried } = await workload.processes[0].ask('probe', { key: 'three-down', wait })
      t.diagnostic(`acquire ended after ${waited.map(({ ms }) => ms.toFixed(0))} ms of ${wait}`)
      t.diagnostic(`tryAcquire ended after ${tried.map(({ ms }) => ms.toFixed(0))} ms of ${STORE_TIMEOUT}`)
      for (const { error } of [...waited, ...tried]) {
        assert.equal(error?.name, 'QuorumError')
        assert.equal(error.code, 'ERR_LOCK_QUORUM')
      }
      // The machine may be late because it runs the other processes. No node may add a delay.
      for (const { ms } of waited) assert.ok(ms >= wait - 1 && ms < wait + 250, `${ms} ms`)
      for (const { ms } of tried) assert.ok(ms < STORE_TIMEOUT + 250, `${ms} ms`)
      await Promise.all(down.map(heal))
      await workload.worked(50, 5_000)
      const result = await workload.stop()
      t.diagnostic(`${JSON.stringify(result.counts)} ${JSON.stringify(result.errors)}`)
      assertSafe(result)
    })
  }
})
