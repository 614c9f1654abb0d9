// Once per cluster, in real processes: whatever their clocks tell, whoever is killed, each tick is run by one of them.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { sleep, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

/** How many ticks, one a second. */
const TICKS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 12)
const SECOND = 1_000
/** By how much the clocks are ahead. */
const SHIFTS = [-2_000, 0, 2_000]

const SHIFTED_CLOCK = fileURLToPath(new URL('fixtures/shifted-clock.mjs', import.meta.url))

const startScheduler = (t, options, shift = 0) =>
  startChild(t, 'scheduler.mjs', options, {
    nodeArgs: ['--import', SHIFTED_CLOCK],
    env: { CLOCK_SHIFT: String(shift) },
  })

const eventsOf = (children, name) => children.flatMap(({ events }) => events).filter(({ event }) => event === name)

/** What a failing test needs to be understood. */
const story = (children) =>
  children
    .flatMap((child, i) => child.events.map((event) => ({ child: i, ...event })))
    .filter(({ event }) => event !== 'began')
    .sort((a, b) => a.at - b.at)
    .map((event) => JSON.stringify(event))
    .join('\n')

/** Three processes whose clocks are 2 s apart run TICKS ticks; `disturb` happens after half of them. */
async function runTicks(t, store, disturb) {
  const name = randomUUID()
  const children = SHIFTS.map((shift) => startScheduler(t, { store, name }, shift))
  await Promise.all(children.map((child) => child.next('ready')))
  const clocks = await Promise.all(children.map(async (child) => (await child.ask('clock')).clock))
  for (const [i, clock] of clocks.entries()) {
    assert.ok(Math.abs(clock - Date.now() - SHIFTS[i]) < 500, 'the clocks are shifted')
  }
  // All of them come to all of these ticks.
  const first = Math.ceil(Math.max(...clocks) / SECOND) * SECOND + SECOND
  const end = first + TICKS * SECOND
  await sleep((TICKS / 2) * SECOND)
  await disturb?.()
  await sleep(end - Math.min(...SHIFTS) + SECOND - Date.now())
  await Promise.all(children.map((child) => child.ask('stop')))
  for (const child of children) assert.equal((await within('its end', child.ended)).code, 0, child.stderr)

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
    'in the order in which they ran',
  )
  for (const what of ['unhandled', 'failed']) assert.deepEqual(eventsOf(children, what), [], story(children))
  // Before that they begin in the middle of each other's ticks.
  const skipped = eventsOf(children, 'skipped').filter(({ tick }) => tick >= first)
  assert.deepEqual(skipped, [], story(children))
  return children
}

// At once: each waits for the clock, and for nothing that another does.
describe('process: schedule', { concurrency: 8, timeout: 600_000 }, () => {
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

  test('three clocks 2 s apart, on a quorum of which one server is killed in between', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    await runTicks(
      t,
      servers.map((server) => server.url()),
      () => servers[0].kill(),
    )
  })

  test('Redis killed for 3 s: what could not be asked is missed, and nothing runs without an answer', async (t) => {
    const server = await startRedis(t, { keep: true })
    const name = randomUUID()
    const children = [0, 0].map(() => startScheduler(t, { store: server.url(), name }))
    await Promise.all(children.map((child) => child.next('ready')))
    await Promise.race(children.map((child) => child.next('ran')))
    await server.kill()
    const gone = Date.now()
    await Promise.all(children.map((child) => child.next('missed')))
    await sleep(gone + 3 * SECOND - Date.now())
    const back = Date.now()
    await server.start()
    await Promise.race(children.map((child) => child.next('ran')))
    await Promise.all(children.map((child) => child.ask('stop')))
    const ran = eventsOf(children, 'ran').map(({ tick }) => tick)
    assert.equal(new Set(ran).size, ran.length, story(children))
    const outage = ran.filter((tick) => tick > gone && tick < back - SECOND)
    assert.deepEqual(outage, [], story(children))
    for (const { error } of eventsOf(children, 'missed')) assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
  })

  test('the process that runs the job is killed: the ticks after the ttl go on elsewhere', async (t) => {
    const store = (await startRedis(t)).url()
    const name = randomUUID()
    const options = { store, name, jobMs: 60_000, schedule: { ttl: 1_000 } }
    const victim = startScheduler(t, options)
    const { tick, fence } = await victim.next('began')
    const heir = startScheduler(t, { ...options, jobMs: 1 })
    await heir.next('skipped')
    await victim.kill()
    const next = await heir.next('ran')
    assert.ok(next.tick > tick && next.fence > fence)
    assert.ok(
      heir.events.every((event) => event.event !== 'ran' || event.tick !== tick),
      'what was begun is not begun again by those who have asked',
    )
    await heir.ask('stop')
  })

  test('a process stays while it has a schedule, and ends with it; with unref it ends at once', async (t) => {
    const store = (await startRedis(t)).url()
    const script = `
      const { createLockClient } = require('leasehold')
      const locks = createLockClient(process.env.STORE)
      const schedule = locks.schedule('alive', '0 0 1 1 *', () => {}, { unref: process.env.UNREF === 'yes' })
      console.log('started')
      if (process.env.END) setTimeout(() => (process.env.END === 'stop' ? schedule.stop() : locks.close()), 300)`
    const start = (env) => {
      const child = spawn(process.execPath, ['-e', script], {
        env: { ...process.env, NODE_TEST_CONTEXT: undefined, STORE: store, ...env },
      })
      atEnd(t, () => child.kill('SIGKILL'))
      const ended = new Promise((resolve) => child.once('exit', (code) => resolve(code)))
      const started = new Promise((resolve) => child.stdout.once('data', resolve))
      return { child, ended, started }
    }
    assert.equal(await within('unref', start({ UNREF: 'yes' }).ended, 10_000), 0)
    assert.equal(await within('stop()', start({ END: 'stop' }).ended, 10_000), 0)
    assert.equal(await within('close()', start({ END: 'close' }).ended, 10_000), 0)
    const { child, ended, started } = start({})
    await started
    assert.equal(await Promise.race([ended, sleep(1_500).then(() => 'stays')]), 'stays')
    child.kill('SIGKILL')
  })

  test('once: a process killed in the middle leaves the id to whoever comes after the ttl', async (t) => {
    const store = (await startRedis(t)).url()
    const key = randomUUID()
    const locks = createLockClient({ store })
    atEnd(t, () => locks.close())
    const child = startChild(t, 'once.mjs', { store, key, id: '7', ttl: 1_000 })
    const { fence } = await child.next('began')
    assert.deepEqual(await locks.once(key, '7', () => 1), { ran: false })
    await child.kill()
    const end = Date.now() + 10_000
    let outcome
    do outcome = await locks.once(key, '7', (lease) => lease.fence)
    while (!outcome.ran && Date.now() < end)
    assert.ok(outcome.value > fence, 'storage can tell the two apart')
    assert.deepEqual(await locks.once(key, '7', () => 1), { ran: false })
  })
})
