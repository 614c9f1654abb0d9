// Once per cluster, in real processes: if one of them is killed, another one runs the ticks.
// ticks.test.mjs tests wrong clocks.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { EventEmitter, once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { eventsOf, startScheduler, story } from '../support/schedulers.mjs'
import { startRedis } from '../support/servers.mjs'

const SECOND = 1_000

// These tests run at the same time: each waits for the clock, and for nothing that another test
// does.
describe('process: schedule', { concurrency: 8, timeout: 600_000 }, () => {
  test('while Redis is killed for 3 s, ticks are missed, and no job runs without an answer', async (t) => {
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

  test('if the process that runs the job is killed, another process runs the ticks after the ttl', async (t) => {
    const store = (await startRedis(t)).url()
    const name = randomUUID()
    const options = { store, name, jobMs: 60_000, schedule: { ttl: 1_000 } }
    const victim = startScheduler(t, options)
    const { tick, fence } = await victim.next('began')
    const other = startScheduler(t, { ...options, jobMs: 1 })
    await other.next('skipped')
    await victim.kill()
    const next = await other.next('ran')
    assert.ok(next.tick > tick && next.fence > fence)
    assert.ok(
      other.events.every((event) => event.event !== 'ran' || event.tick !== tick),
      'the other process does not run the tick that had begun',
    )
    await other.ask('stop')
  })

  test('if a process that waits for its turn is killed, another one runs its tick after the ttl', async (t) => {
    const store = (await startRedis(t)).url()
    const name = randomUUID()
    const locks = createLockClient({ store })
    atEnd(t, () => locks.close())
    const earlier = await locks.acquire(name)
    const options = { store, name, cron: '* * * * *', schedule: { ttl: 1_000, catchUp: 60_000 } }
    await until('some time before the next tick', () => Date.now() % (60 * SECOND) < 40 * SECOND, 30_000)
    const victim = startScheduler(t, options)
    const isTaken = async () => (await locks.list({ pattern: `${name}@once:*` })).locks[0]
    const { key, holder } = await until('the tick to be taken', isTaken)
    const other = startScheduler(t, options)
    await other.next('ready')
    await victim.kill()
    await until('the other process to take it', async () => ![undefined, holder].includes((await isTaken())?.holder))
    await earlier.release()
    assert.equal((await other.next('ran')).tick, Number(key.split(':').at(-1)))
    await other.ask('stop')
  })

  test('stop() does not wait for a ttl if the store is down when the job ends', async (t) => {
    const server = await startRedis(t)
    const locks = createLockClient({ store: server.url(), ttl: 60_000, drain: 1_000 })
    atEnd(t, () => locks.close())
    const job = new EventEmitter()
    const options = { overlap: true }
    const schedule = locks.schedule(randomUUID(), '* * * * * *', () => once(job, 'end'), options)
    const errors = []
    schedule.on('error', (error) => errors.push(error.code))
    await once(schedule, 'run')
    await server.kill()
    const stopped = schedule.stop()
    const before = now()
    job.emit('end')
    await within('stop() to resolve', stopped, 20_000)
    t.diagnostic(`stop() resolved ${Math.round(now() - before)} ms after the job`)
    await locks.close()
    // On a busy machine, the last try may fail a moment after the end of the drain, and so may the
    // release.
    await until('the client to have tried until the end of its drain', () => errors.length > 0)
    assert.deepEqual([...new Set(errors)], ['ERR_STORE_UNAVAILABLE'])
  })

  test('a client that closes while Redis is frozen does not release the id of finished once() work', async (t) => {
    const server = await startRedis(t)
    const [locks, others] = [createLockClient({ store: server.url() }), createLockClient({ store: server.url() })]
    atEnd(t, () => others.close())
    locks.on('error', () => {})
    const id = [randomUUID(), '1']
    const done = locks.once(...id, () => server.freeze())
    await until('the client to try', () => locks.stats().errors > 0)
    const closed = locks.close({ drain: 1_500 })
    // After the drain, the client still tries to release its locks.
    await sleep(1_650)
    await server.thaw()
    await closed
    assert.equal((await done).ran, true)
    assert.equal((await others.once(...id, () => assert.fail('it ran again'), { wait: 1_000 })).ran, false)
  })

  test('a process stays until its schedule stops; with unref, it ends at once', async (t) => {
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

  test('if a process is killed during once(), the next caller after the ttl gets the id', async (t) => {
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
