// Runs contending processes for a second without faults, then with faults, and then without again.
// Computes the figures, and asserts what must hold.

import assert from 'node:assert/strict'
import { now, sleep } from '../clock.mjs'
import { injectFaults } from './random-faults.mjs'
import { rates, recoveries, usualRate } from './recovery.mjs'

const QUIET = 1_000

const whole = (ms) => (ms === undefined ? 'interrupted' : Math.round(ms))

/**
 * Returns the number of heals that were measured, their median and longest time, and the number of
 * the others.
 */
function summary(healed) {
  const times = healed.flatMap(({ ms }) => (ms === undefined ? [] : [ms])).sort((a, b) => a - b)
  return {
    measured: times.length,
    interrupted: healed.length - times.length,
    p50: whole(times[Math.floor(times.length / 2)]),
    max: whole(times.at(-1)),
  }
}

/**
 * Lets `workload` run while `act()` breaks things and resolves to [{ node, fault, began, healed }].
 * The result has everything that workload.stop() returns, and `faults`, `usual` (leases in 100 ms
 * before), `rates` (in each 100 ms of `act`), `back` (how soon after each heal half of the usual
 * rate was reached) and `summary` of that.
 */
export async function disturb(workload, act, { limit = 1_000, exclusive = false } = {}) {
  const quietFrom = now()
  await sleep(QUIET)
  const began = now()
  const faults = await act()
  const ended = now()
  await workload.worked(20)
  // The figures include the work after the last heal.
  await sleep(limit)
  const result = await workload.stop()
  const usual = usualRate(result.entered, quietFrom, began)
  const back = recoveries(result.entered, faults, { usual, limit, exclusive })
  return { ...result, faults, usual, rates: rates(result.entered, began, ended), back, summary: summary(back) }
}

/**
 * Calls disturb() with random faults for `seconds`. `plan` has the other options of injectFaults().
 */
export function disturbAtRandom(workload, { seconds, ...plan }, limits) {
  const act = () => {
    const end = now() + seconds * 1_000
    return injectFaults({ ...plan, going: () => now() < end })
  }
  return disturb(workload, act, limits)
}

/** Prints the figures of disturb(). */
export function printFigures(t, { faults, usual, counts, errors, overlaps, overlapCount, rates: each, summary: back }) {
  const kinds = {}
  for (const { fault } of faults) kinds[fault] = (kinds[fault] ?? 0) + 1
  const idle = each.filter((count) => count === 0).length
  const mean = each.reduce((sum, count) => sum + count, 0) / Math.max(1, each.length)
  t.diagnostic(`${faults.length} faults: ${JSON.stringify(kinds)}`)
  t.diagnostic(
    `leases in 100 ms: ${usual} before, ${mean.toFixed(1)} during the faults, none in ${idle} of ${each.length}`,
  )
  t.diagnostic(`ms from a heal to half of that rate: ${JSON.stringify(back)}`)
  t.diagnostic(`${JSON.stringify(counts)} ${JSON.stringify(errors)}`)
  if (overlapCount) t.diagnostic(`${overlapCount} overlaps, the first: ${overlaps[0]}`)
}

/**
 * Asserts what must hold for all faults: errors are handled, losses are reported, no stale write is
 * accepted, and no acquire waits longer than its `wait`. `overrun` is for how many ms this machine
 * or the test may have stopped the process.
 */
export function assertReported({ wrong, counts }, { overrun = 500 } = {}) {
  assert.deepEqual(wrong, [])
  assert.ok(counts.tenures > 20, 'too few leases to check')
  assert.ok(
    counts.events >= counts.lost,
    `${counts.lost} leases were lost, but only ${counts.events} events reported it`,
  )
  assert.ok(counts.longestOverrun < overrun, `an acquire ended ${counts.longestOverrun} ms after its time-out`)
}

/** Asserts also that no leases overlap, which must hold if the store keeps its leases. */
export function assertSafe(result, limits) {
  assertReported(result, limits)
  assert.deepEqual(result.overlaps, [], `${result.overlapCount} in all`)
}

/** Asserts that service was back within `limit` ms of each heal. */
export function assertBack({ back }, limit) {
  const late = back.filter(({ ms }) => ms !== undefined && ms > limit)
  const text = late.map(({ node, fault, ms }) => `${node}, ${fault}: ${Math.round(ms)} ms`).join('; ')
  assert.deepEqual(late, [], `not within ${limit} ms: ${text}`)
  assert.ok(
    back.some(({ ms }) => ms !== undefined),
    'no heal was measured',
  )
}
