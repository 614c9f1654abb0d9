// Mutual exclusion, and fences that only grow: two processes with 8 contenders each increment a
// counter that only the lock protects, while one of them may be killed at any time.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { now, sleep } from '../support/clock.mjs'
import { readLog } from '../support/counter.mjs'
import { randomFrom } from '../support/random.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 2)
const TTL = 1_000
/**
 * The fewest kills. On a busy machine, processes take so long to start that the time is over after
 * two kills, and some processes never get a turn. If this is larger, the test takes longer there.
 */
const FEWEST_KILLS = 4

function check(t, path) {
  const log = readLog(path)
  for (const [i, { value, fence, who }] of log.entries()) {
    assert.equal(value, i + 1, `lost or doubled update at line ${i + 1} by ${who}`)
    if (i > 0) assert.ok(fence > log[i - 1].fence, `fence out of order at line ${i + 1}: ${log[i - 1].fence}, ${fence}`)
  }
  const turns = {}
  for (const { who } of log) turns[who] = (turns[who] ?? 0) + 1
  t.diagnostic(`${log.length} increments: ${JSON.stringify(turns)}`)
  return { log, turns }
}

for (const name of sharedStoreNames) {
  describe(`counter: ${name}`, { timeout: SECONDS * 10_000 + 120_000 }, () => {
    const setUp = async (t) => {
      const store = await openStore(name, t)
      const path = join(temporaryFolder(t), 'counter.log')
      writeFileSync(path, '')
      const start = async (who) => {
        const child = startChild(t, 'counter.mjs', { store, path, who, ttl: TTL })
        await child.next('running')
        return child
      }
      return { path, start }
    }

    test('two processes, 8 contenders each: no update lost, no fence out of order', async (t) => {
      const { path, start } = await setUp(t)
      const children = await Promise.all(['a', 'b'].map(start))
      await sleep(SECONDS * 1_000)
      const results = await Promise.all(children.map((child) => child.ask('stop', {}, 60_000)))
      const { log, turns } = check(t, path)
      assert.deepEqual(
        children.flatMap((child) => child.events.filter(({ event }) => event === 'failed')),
        [],
      )
      assert.equal(log.length, results[0].turns + results[1].turns, 'every increment that was made is there')
      assert.ok(Math.min(turns.a, turns.b) > log.length / 20, 'both had their turns')
      const handovers = log.filter(({ who }, i) => i > 0 && who !== log[i - 1].who).length
      t.diagnostic(`${handovers} times from one process to the other`)
      assert.ok(handovers > SECONDS * 5, 'the lock went to and fro')
    })

    test('while one of the processes is killed and restarted at random', async (t) => {
      const random = randomFrom(t)
      const { path, start } = await setUp(t)
      const steady = await start('steady')
      let victim = await start('victim-0')
      let kills = 0
      for (const end = now() + SECONDS * 1_000; now() < end || kills < FEWEST_KILLS; ) {
        await sleep(100 + random() * 900)
        await victim.kill()
        kills++
        victim = await start(`victim-${kills}`)
      }
      const results = await Promise.all([steady, victim].map((child) => child.ask('stop', {}, 60_000)))
      const { turns } = check(t, path)
      assert.deepEqual(
        steady.events.filter(({ event }) => event === 'failed'),
        [],
      )
      assert.equal(turns.steady ?? 0, results[0].turns)
      assert.ok(results[0].turns > 0, 'the lock came back after the kills')
      const victims = Object.keys(turns).filter((who) => who !== 'steady')
      assert.ok(victims.length >= 2, 'so did the killed processes and those that followed')
      t.diagnostic(`${kills} kills; ${victims.length} of the killed processes and the last had held the lock`)
    })
  })
}
