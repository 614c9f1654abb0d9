// A crew at work, calm for a second, then a storm, then calm again: what came of it, in figures, and what must be so.

import assert from 'node:assert/strict'
import { now, sleep } from '../clock.mjs'
import { rates, recoveries, usualRate } from './recovery.mjs'
import { storm } from './storm.mjs'

const CALM = 1_000

const whole = (ms) => (ms === undefined ? 'interrupted' : Math.round(ms))

/** Of those that were measured: how many, the median and the longest; and how many were not. */
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
 * Lets `crew` work while `act()` breaks things, which resolves to [{ node, fault, began, healed }]. The result has everything
 * that crew.stop() has, and `faults`, `usual` (tenures in 100 ms before), `rates` (in each 100 ms of `act`), `back` (how soon
 * after each heal it was half as much as usual again) and `summary` of that.
 */
export async function disturb(crew, act, { limit = 1_000, exclusive = false } = {}) {
  const calm = now()
  await sleep(CALM)
  const began = now()
  const faults = await act()
  const ended = now()
  await crew.worked(20)
  // What came after the last heal is a part of the figures.
  await sleep(limit)
  const result = await crew.stop()
  const usual = usualRate(result.entered, calm, began)
  const back = recoveries(result.entered, faults, { usual, limit, exclusive })
  return { ...result, faults, usual, rates: rates(result.entered, began, ended), back, summary: summary(back) }
}

/** disturb() by a storm of so many `seconds`; `weather` is what storm() takes besides. */
export function weather(crew, { seconds, ...weather }, limits) {
  const act = () => {
    const end = now() + seconds * 1_000
    return storm({ ...weather, going: () => now() < end })
  }
  return disturb(crew, act, limits)
}

/** Prints the figures of disturb(). */
export function tell(t, { faults, usual, counts, errors, overlaps, overlapCount, rates: each, summary: back }) {
  const kinds = {}
  for (const { fault } of faults) kinds[fault] = (kinds[fault] ?? 0) + 1
  const idle = each.filter((count) => count === 0).length
  const mean = each.reduce((sum, count) => sum + count, 0) / Math.max(1, each.length)
  t.diagnostic(`${faults.length} faults: ${JSON.stringify(kinds)}`)
  t.diagnostic(`tenures in 100 ms: ${usual} before, ${mean.toFixed(1)} meanwhile, none in ${idle} of ${each.length}`)
  t.diagnostic(`ms from a heal to half of that rate: ${JSON.stringify(back)}`)
  t.diagnostic(`${JSON.stringify(counts)} ${JSON.stringify(errors)}`)
  if (overlapCount) t.diagnostic(`${overlapCount} overlaps, the first: ${overlaps[0]}`)
}

/**
 * What must be so whatever was broken: errors are handled, losses told, no stale write accepted, and nobody waits longer
 * than asked, by `overrun` ms for which this machine, or who broke things, may have kept it from running.
 */
export function assertTold({ wrong, counts }, { overrun = 500 } = {}) {
  assert.deepEqual(wrong, [])
  assert.ok(counts.tenures > 20, 'there was a history to judge')
  assert.ok(counts.events >= counts.lost, `${counts.lost} leases were lost, and ${counts.events} events told so`)
  assert.ok(counts.longestOverrun < overrun, `an acquire ended ${counts.longestOverrun} ms after its time-out`)
}

/** What must be so where the store keeps what it has granted: nobody overlapped, either. */
export function assertSafe(result, limits) {
  assertTold(result, limits)
  assert.deepEqual(result.overlaps, [], `${result.overlapCount} in all`)
}

/** That service was back within `limit` ms of each heal. */
export function assertBack({ back }, limit) {
  const late = back.filter(({ ms }) => ms !== undefined && ms > limit)
  const text = late.map(({ node, fault, ms }) => `${node}, ${fault}: ${Math.round(ms)} ms`).join('; ')
  assert.deepEqual(late, [], `not within ${limit} ms: ${text}`)
  assert.ok(
    back.some(({ ms }) => ms !== undefined),
    'there was a heal to measure',
  )
}
