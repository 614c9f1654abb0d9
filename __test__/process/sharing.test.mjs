// Mutual exclusion of shared locks: a writer never shares the lock, a semaphore never has more
// holders than permits, fences grow in the order of the leases, and no client that wants two locks
// waits for ever.

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { faults, readHistory } from '../support/history.mjs'
import { randomFrom } from '../support/random.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 2)
const LOCKS = ['book', 'pool', ...Array.from({ length: 5 }, (_, i) => `pair-${i}`)]

for (const name of storeNames) {
  const processes = name === 'memory' ? 1 : 3
  describe(`sharing: ${name}`, { timeout: SECONDS * 20_000 + 120_000 }, () => {
    // Long enough that no lease is lost on a busy machine.
    const setUp = async (t) => {
      const store = await openStore(name, t)
      const path = join(temporaryFolder(t), 'history')
      writeFileSync(path, '')
      const start = async (who, ttl = 5_000) => {
        const child = startChild(t, 'sharers.mjs', { store, path, who, ttl })
        await child.next('running')
        return child
      }
      return { store, path, start }
    }

    /**
     * Stops all children. A child that waits for a lock for ever does not answer. Resolves to the
     * turns of each child.
     */
    async function stop(children) {
      const results = await Promise.all(children.map((child) => child.ask('stop', {}, 30_000)))
      assert.deepEqual(
        children.flatMap((child) => child.events.filter(({ event }) => event === 'failed')),
        [],
      )
      for (const { turns, late } of results) {
        for (const [role, count] of Object.entries(turns)) {
          assert.ok(count > SECONDS, `one process had ${count} turns as ${role}`)
        }
        assert.equal(late, 0, 'no lease was lost')
      }
      return results
    }

    async function assertNothingLeft(t, store) {
      const locks = createLockClient(store)
      atEnd(t, () => locks.close())
      for (const key of LOCKS) await until(`${key} to be free`, async () => (await locks.inspect(key)) === null, 3_000)
    }

    test(`readers, writers, permits and pairs in ${processes} processes`, async (t) => {
      const { store, path, start } = await setUp(t)
      const children = await Promise.all(Array.from({ length: processes }, (_, i) => start(`p${i}`)))
      await sleep(SECONDS * 1_000)
      const results = await stop(children)
      const history = readHistory(path)
      const sum = (role) => results.reduce((total, { turns }) => total + turns[role], 0)
      t.diagnostic(`${history.length} leases: ${results.map(({ turns }) => JSON.stringify(turns)).join(' ')}`)
      assert.deepEqual(faults(history).slice(0, 5), [])
      assert.equal(
        history.length,
        sum('read') + sum('write') + sum('permit') + 2 * sum('pair'),
        'the history has all turns',
      )
      // If they had never held a lock together, the test would prove nothing.
      assert.ok(mostAtATime(history, 'pool') === 3 && mostAtATime(history, 'book') > 1, 'the locks were never shared')
      if (name !== 'memory') await assertNothingLeft(t, store)
    })

    // The store in memory ends with its process.
    if (name === 'memory') return
    test('while one of the processes is killed and restarted at random', async (t) => {
      const random = randomFrom(t)
      const { store, path, start } = await setUp(t)
      const steady = await Promise.all(['p0', 'p1'].map((who) => start(who)))
      // The death of the victim costs the other processes a ttl.
      const ttl = 500
      let victim = await start('victim-0', ttl)
      let kills = 0
      for (const end = now() + SECONDS * 1_000; now() < end; ) {
        await sleep(300 + random() * 700)
        await victim.kill()
        kills++
        victim = await start(`victim-${kills}`, ttl)
      }
      await victim.kill()
      const results = await stop(steady)
      const history = readHistory(path)
      t.diagnostic(`${kills} kills: ${results.map(({ turns }) => JSON.stringify(turns)).join(' ')}`)
      assert.deepEqual(faults(history).slice(0, 5), [])
      assert.ok(mostAtATime(history, 'pool') === 3, 'all permits were in use')
      assert.ok(new Set(history.map(({ who }) => who)).size > kills, 'the killed processes had turns')
      await assertNothingLeft(t, store)
    })
  })
}

function mostAtATime(history, name) {
  const tenures = history.filter(({ lock }) => lock === name)
  const steps = tenures.flatMap(({ begin, end }) => [
    [begin, 1],
    [end, -1],
  ])
  let inside = 0
  let most = 0
  for (const [, step] of steps.sort((a, b) => a[0] - b[0])) {
    inside += step
    most = Math.max(most, inside)
  }
  return most
}

test('the check of a history finds each fault', () => {
  const tenure = (begin, end, fence, most = 1, lock = 'k') => ({ lock, most, fence, begin, end, who: 'w' })
  const fine = [tenure(3, 4, 3), tenure(0, 1, 1), tenure(1, 2, 2), tenure(0, 9, 1, 1, 'other')]
  assert.deepEqual(faults(fine), [])
  assert.deepEqual(faults([tenure(0, 5, 2, 2), tenure(1, 6, 1, 2), tenure(5, 7, 3, 2), tenure(7, 8, 4)]), [])
  const broken = {
    'two alone': [tenure(0, 2, 1), tenure(1, 3, 2)],
    'a writer together with a reader': [tenure(0, 2, 1, 1_000_000), tenure(1, 3, 2)],
    'a reader together with a writer, after another writer': [
      tenure(0, 9, 1),
      tenure(10, 20, 2),
      tenure(15, 16, 3, 1_000_000),
    ],
    'one permit too many': [tenure(0, 9, 1, 2), tenure(1, 9, 2, 2), tenure(2, 9, 3, 2)],
    'a fence that went back': [tenure(0, 1, 2), tenure(2, 3, 1)],
    'a fence given twice': [tenure(0, 1, 2), tenure(2, 3, 2)],
    'a fence below that of a reader before': [tenure(0, 1, 5, 9), tenure(2, 3, 4)],
    'a fence of a reader below that of a writer before': [tenure(0, 1, 5), tenure(2, 3, 4, 9)],
  }
  for (const [what, history] of Object.entries(broken)) assert.equal(faults(history).length, 1, what)
})
