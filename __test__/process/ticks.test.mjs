// Once per cluster: as many runs as ticks, in processes whose clocks are wrong, while servers are
// killed. The tests take a minute and mostly wait, so `npm test` runs them together with other
// files (see run.mjs). Their servers are their own.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { sleep, until, within } from '../support/clock.mjs'
import { eventsOf, startScheduler, story } from '../support/schedulers.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

/** How many ticks the test waits for, one per second. */
const TICKS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 60)
const SECOND = 1_000
/** By how much the clocks are ahead, in ms. */
const SHIFTS = [-2_000, 0, 2_000]

/**
 * Runs TICKS ticks in three processes whose clocks are 2 s apart. Calls `disturb` after half of
 * them.
 */
async function runTicks(t, store, disturb) {
  const name = randomUUID()
  const children = SHIFTS.map((shift) => startScheduler(t, { store, name }, shift))
  await Promise.all(children.map((child) => child.next('ready')))
  const clocks = await Promise.all(
    children.map(async (child, i) => {
      const asked = Date.now()
      const { clock } = await child.ask('clock')
      const real = clock - SHIFTS[i]
      assert.ok(real > asked - 50 && real < Date.now() + 50, `the clocks are shifted: ${real - asked} ms`)
      return clock
    }),
  )
  // All processes take part in all of these ticks.
  const first = Math.ceil(Math.max(...clocks) / SECOND) * SECOND + SECOND
  const end = first + TICKS * SECOND
  await sleep((TICKS / 2) * SECOND)
  await disturb?.()
  await sleep(end - Math.min(...SHIFTS) + SECOND - Date.now())
  await Promise.all(children.map((child) => child.ask('stop')))
  for (const child of children) assert.equal((await within('the end of a process', child.ended)).code, 0, child.stderr)

  const ran = eventsOf(children, 'ran').filter(({ tick }) => tick >= first && tick < end)
  const ticks = Array.from({ length: TICKS }, (_, i) => first + i * SECOND)
  assert.deepEqual(
    ran.map(({ tick }) => tick).sort((a, b) => a - b),
    ticks,
    story(children),
  )
  const fences = ran.sort((a, b) => a.at - b.at).map(({ fence }) => fence)
  assert.deepEqual(
    fences,
    fences.toSorted((a, b) => a - b),
    'fences grow in the order of the runs',
  )
  for (const what of ['unhandled', 'failed']) assert.deepEqual(eventsOf(children, what), [], story(children))
  // The processes begin in the middle of earlier ticks.
  const skipped = eventsOf(children, 'skipped').filter(({ tick }) => tick >= first)
  assert.deepEqual(skipped, [], story(children))
  return children
}

// These tests run at the same time: each waits for the clock, and for nothing that another test
// does.
describe('process: ticks', { concurrency: 4, timeout: 600_000 }, () => {
  test('three clocks 2 s apart: as many runs as ticks, none doubled', async (t) => {
    const children = await runTicks(t, (await startRedis(t)).url())
    assert.deepEqual(eventsOf(children, 'missed'), [], story(children))
  })

  test('three clocks 2 s apart, Redis killed and restarted with its data in between', async (t) => {
    const server = await startRedis(t, { keep: true })
    await runTicks(t, server.url(), () => server.restart())
  })

  test('three clocks 2 s apart, on the embedded store', async (t) => {
    await runTicks(t, `sqlite:${temporaryFolder(t)}/locks.db`)
  })

  for (const kind of ['sqlite', 'redis']) {
    test(`a clock that is late by more than keep - catchUp, but less than keep: no tick runs twice (${kind})`, async (t) => {
      const store = kind === 'redis' ? (await startRedis(t)).url() : `sqlite:${temporaryFolder(t)}/locks.db`
      // The late process asks for a tick from 3 s after it until 5 s after it.
      const schedule = { keep: 4_000, catchUp: 2_000, ttl: 500 }
      const options = { store, name: randomUUID(), cron: '*/10 * * * * *', schedule }
      const late = startScheduler(t, options, -3_000)
      await late.next('ready')
      const prompt = startScheduler(t, options)
      const { tick } = await prompt.next('ran')
      await until('the late process to be past the tick', () => Date.now() > tick + 6_000)
      const children = [late, prompt]
      await Promise.all(children.map((child) => child.ask('stop')))
      const ran = eventsOf(children, 'ran').map((event) => event.tick)
      assert.equal(new Set(ran).size, ran.length, story(children))
    })
  }

  test('three clocks 2 s apart, on a quorum of which one server is killed in between', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    await runTicks(
      t,
      servers.map((server) => server.url()),
      () => servers[0].kill(),
    )
  })
})
