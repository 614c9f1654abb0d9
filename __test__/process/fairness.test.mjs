// No waiter starves among contenders that never rest. With local hand-off, neither other processes
// nor waiters of the same process starve.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { now, sleep } from '../support/clock.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

const SECONDS = Math.min(Number(process.env.LEASEHOLD_TEST_SECONDS ?? 3), 20)
const CONTENDERS = 4

/** Returns what is unfair about the turns of each contender, by process. */
function unfair(turns) {
  const sums = turns.map((each) => each.reduce((a, b) => a + b))
  const share = sums.reduce((a, b) => a + b) / sums.length
  const complaints = sums
    .map((sum, i) => [sum / share, i])
    .filter(([part]) => !(Math.abs(part - 1) <= 0.2))
    .map(([part, i]) => `process ${i} had ${(part * 100).toFixed(0)} % of its share`)
  for (const [i, each] of turns.entries()) {
    const ratio = Math.min(...each) / Math.max(...each)
    if (!(ratio >= 0.8))
      complaints.push(`in process ${i} the unluckiest had ${(ratio * 100).toFixed(0)} % of the luckiest`)
  }
  return complaints
}

for (const name of storeNames) {
  const processes = name === 'memory' ? 1 : 4
  describe(`fairness: ${name}`, { timeout: SECONDS * 10_000 + 120_000 }, () => {
    for (const handOffs of [undefined, 0]) {
      const how = handOffs === undefined ? 'with local hand-off' : 'in strict order of arrival'
      test(`${processes} × ${CONTENDERS} contenders ${how}`, async (t) => {
        const store = await openStore(name, t)
        const key = randomUUID()
        const children = Array.from({ length: processes }, () =>
          startChild(t, 'contenders.mjs', { store, key, contenders: CONTENDERS, client: { handOffs } }),
        )
        await Promise.all(children.map((child) => child.next('ready')))
        await Promise.all(children.map((child) => child.ask('go')))
        const readTurns = () => Promise.all(children.map((child) => child.ask('look')))
        // Counted while all contenders take turns.
        const before = await readTurns()
        const start = now()
        await sleep(SECONDS * 1_000)
        const after = await readTurns()
        const ms = now() - start
        const stopped = await Promise.all(children.map((child) => child.ask('stop', {}, 30_000)))
        assert.deepEqual(
          children.flatMap((child) => child.events.filter(({ event }) => event === 'failed')),
          [],
        )
        const turns = after.map((child, i) => child.turns.map((count, j) => count - before[i].turns[j]))
        const sum = turns.flat().reduce((a, b) => a + b)
        t.diagnostic(`${((sum / ms) * 1_000).toFixed(0)} turns/s: ${JSON.stringify(turns)}`)
        const local = stopped.reduce((total, { stats }) => total + stats.localHandOffs, 0)
        if (handOffs === 0) assert.equal(local, 0)
        else assert.ok(local > 0, 'some leases were handed on within a process')
        assert.ok(Math.min(...turns.flat()) > 20, 'too few turns to judge')
        assert.deepEqual(unfair(turns), [])
      })
    }
  })
}

test('unfair turns are reported', () => {
  assert.deepEqual(
    unfair([
      [100, 110],
      [95, 105],
    ]),
    [],
  )
  assert.equal(
    unfair([
      [100, 100],
      [50, 50],
    ]).length,
    2,
  )
  assert.match(
    unfair([
      [100, 70],
      [85, 85],
    ])[0],
    /unluckiest had 70 %/,
  )
  assert.equal(unfair([[0, 0]]).length, 2)
})
