// Checks that the checks of the chaos tests find each fault.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { judge } from '../support/chaos/checks.mjs'
import { longestGap, rates, recoveries, recovery, usualRate } from '../support/chaos/recovery.mjs'

const tenure = (who, fence, begin, end, more = {}) => ({ lock: 'a', most: 1, who, fence, begin, end, ...more })
const write = (who, fence, accepted, lock = 'a') => ({ lock, op: 'write', who, fence, accepted })
const found = (operations, tenures = []) => Object.values(judge({ operations, tenures })).flat()

describe('chaos: the check of a history', () => {
  test('accepts holders that follow one another, in any order of their records', () => {
    const tenures = [tenure('y', 2, 10, 20), tenure('x', 1, 0, 10), tenure('z', 1, 5, 15, { lock: 'b' })]
    assert.deepEqual(found([write('x', 1, true), write('y', 2, true), write('x', 1, false)], tenures), [])
  })

  test('finds two holders at a time', () => {
    const wrong = found([], [tenure('x', 1, 0, 10.5), tenure('y', 2, 10, 20)])
    assert.equal(wrong.length, 1)
    assert.match(wrong[0], /2 at a time.*x.*y/)
  })

  test('finds a lease within another', () => {
    assert.match(found([], [tenure('x', 1, 0, 100), tenure('y', 2, 10, 20)])[0], /2 at a time/)
  })

  test('finds a fence that goes back or is given twice', () => {
    assert.match(found([], [tenure('x', 2, 0, 10), tenure('y', 1, 20, 30)])[0], /fence 2 was before y/)
    assert.match(found([], [tenure('x', 2, 0, 10), tenure('y', 2, 20, 30)])[0], /fence 2 was before y/)
  })

  test('finds a write that was accepted from a stale holder', () => {
    assert.match(found([write('y', 2, true), write('x', 1, true)])[0], /number 1 of x .* accepted from a stale holder/)
  })

  test('finds a refusal without a reason', () => {
    assert.match(found([write('x', 1, true), write('x', 1, false)])[0], /refused, though/)
    assert.deepEqual(found([write('x', 2, true), write('y', 1, true, 'b')]), [])
  })

  test('finds a refused holder', () => {
    const wrong = found([write('y', 2, true), write('x', 1, false)], [tenure('x', 1, 0, 10, { refused: true })])
    assert.equal(wrong.length, 1)
    assert.match(wrong[0], /fence 1 of x was refused while it held/)
  })
})

describe('chaos: the recovery', () => {
  const every10 = Array.from({ length: 100 }, (_, i) => i * 10)

  test('has rates and a usual rate for each 100 ms', () => {
    assert.deepEqual(rates([1, 2, 99, 100, 250, 300], 0, 300), [3, 1, 1])
    assert.equal(usualRate(every10, 0, 1_000), 10)
    assert.equal(usualRate([], 0, 0), 0)
    assert.equal(longestGap([0, 0, 3, 0, 1, 0, 0, 0]), 300)
    assert.equal(longestGap([]), 0)
  })

  test('ends when enough events came within 100 ms, not at the first event', () => {
    const times = [...every10, 1_500, ...every10.map((time) => 2_000 + time)]
    assert.equal(recovery(times, 1_000, 5), 1_040)
    assert.equal(recovery(times, 1_000, 1), 500)
    assert.equal(recovery(times, 2_990, 5), Infinity)
  })

  test('is measured only if there was enough time before the next fault', () => {
    const times = every10.map((time) => 3_000 + time)
    const faults = [
      { node: 'n', fault: 'f', began: 0, healed: 1_000 },
      { node: 'n', fault: 'g', began: 1_500, healed: 2_900 },
    ]
    const of = (exclusive, limit) => recoveries(times, faults, { usual: 2, limit, exclusive }).map(({ ms }) => ms)
    assert.deepEqual(of(true, 1_000), [undefined, 100])
    assert.deepEqual(of(true, 400), [2_000, 100])
    assert.deepEqual(of(false, 1_000), [2_000, 100])
  })
})
