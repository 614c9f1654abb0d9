// schedule(): its ticks, skipped and missed ticks, and its end.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient, LockClosedError } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { overStores } from '../support/stores.mjs'

const EACH_SECOND = '* * * * * *'
const SECOND = 1_000

/** Returns a job whose runs end when the test calls their `end()`. */
function manualJob() {
  const runs = []
  return {
    runs,
    job: (lease, tick) => new Promise((resolve) => runs.push({ lease, tick, end: resolve })),
  }
}

overStores('schedule', (store) => {
  test('one client runs each tick, under the lock with the name of the schedule', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t)]
    const name = store.key()
    const runs = []
    const schedules = clients.map((locks) =>
      locks.schedule(name, EACH_SECOND, (lease, tick) => runs.push({ tick, key: lease.key, fence: lease.fence })),
    )
    for (const schedule of schedules) {
      assert.equal(schedule.name, name)
      assert.ok(schedule.next.getTime() <= Date.now() + SECOND)
    }
    await until('some ticks', () => runs.length >= 4)
    await Promise.all(schedules.map((schedule) => schedule.stop()))
    for (const { key } of runs) assert.equal(key, name)
    for (const [i, { tick, fence }] of runs.entries()) {
      assert.equal(tick.getTime() % SECOND, 0)
      if (i === 0) continue
      assert.equal(tick - runs[i - 1].tick, SECOND, 'each tick has one run')
      assert.ok(fence > runs[i - 1].fence)
    }
    assert.equal(schedules[0].next, null)
  })

  test('a tick waits for an earlier run, and is skipped at the next tick', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const name = store.key()
    const { runs, job } = manualJob()
    const schedules = [a, b].map((locks) => locks.schedule(name, EACH_SECOND, job))
    const skipped = []
    for (const schedule of schedules) schedule.on('skipped', (tick) => skipped.push(tick.getTime()))
    await until('a run', () => runs.length === 1)
    await until('skipped ticks', () => skipped.length >= 2)
    assert.equal(runs.length, 1)
    assert.equal(new Set(skipped).size, skipped.length, 'one client reports each tick')
    assert.ok(skipped.every((tick) => tick > runs[0].tick.getTime()))
    runs[0].end()
    await until('the next run', () => runs.length === 2)
    assert.ok(!skipped.includes(runs[1].tick.getTime()))
    const stops = schedules.map((schedule) => schedule.stop())
    for (const { end } of runs) end()
    await Promise.all(stops)
  })

  test('if a schedule stops while its tick waits for the lock, another client runs the tick', async (t) => {
    const name = store.key()
    const [a, b] = ['a', 'b'].map((client) => store.client(t, { name: client }))
    // The lock is held, as by an earlier run.
    const earlier = await store.client(t).acquire(name)
    const runs = []
    const schedules = [a, b].map((locks, by) =>
      locks.schedule(name, '*/3 * * * * *', (_, tick) => void runs.push({ by, tick: tick.getTime() })),
    )
    for (const schedule of schedules) schedule.on('skipped', (tick) => assert.fail(`skipped ${tick}`))
    const mark = await until(
      'the tick to be claimed',
      async () => (await a.list({ pattern: `${name}@once:*` })).locks[0],
    )
    const claimer = mark.holder === 'a' ? 0 : 1
    await schedules[claimer].stop()
    await earlier.release()
    await until('the run', () => runs.length === 1)
    assert.deepEqual(runs, [{ by: 1 - claimer, tick: Number(mark.key.split(':').at(-1)) }])
    await schedules[1 - claimer].stop()
  })

  test('with overlap: true, a tick runs during an earlier run', async (t) => {
    const locks = store.client(t)
    const { runs, job } = manualJob()
    const schedule = locks.schedule(store.key(), EACH_SECOND, job, { overlap: true })
    schedule.on('skipped', () => assert.fail('a tick was skipped'))
    await until('two runs at a time', () => runs.length === 2)
    assert.ok(runs.every(({ lease }) => lease.isHeld))
    const stopped = schedule.stop()
    for (const { end } of runs) end()
    await stopped
    assert.equal(locks.stats().held, 0)
  })

  test('stop() waits for the current run, and starts no other', async (t) => {
    const locks = store.client(t)
    const { runs, job } = manualJob()
    const schedule = locks.schedule(store.key(), EACH_SECOND, job)
    await once(schedule, 'run')
    let isStopped = false
    const stopping = [schedule.stop(), schedule.stop()]
    stopping[0].then(() => {
      isStopped = true
    })
    assert.equal(schedule.next, null)
    await locks.ready()
    assert.equal(isStopped, false)
    assert.equal(runs[0].lease.isHeld, true, 'the run keeps its lock')
    runs[0].end()
    await Promise.all(stopping)
    assert.equal(locks.stats().held, 0)
    assert.equal(runs.length, 1)
  })

  test('a failed job is reported, is not tried again, and the next tick runs', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const name = store.key()
    const ticks = []
    const schedules = [a, b].map((locks) =>
      locks.schedule(name, EACH_SECOND, async (_, tick) => {
        ticks.push(tick.getTime())
        throw new Error(`failed at ${tick.getTime()}`)
      }),
    )
    const failures = []
    for (const schedule of schedules)
      schedule.on('error', (error, tick) => failures.push([error.message, tick.getTime()]))
    await until('three failures', () => failures.length >= 3)
    await Promise.all(schedules.map((schedule) => schedule.stop()))
    assert.equal(new Set(ticks).size, ticks.length)
    assert.deepEqual(
      failures,
      ticks.map((tick) => [`failed at ${tick}`, tick]),
    )
  })

  test('an error without a listener of the schedule goes to the client', async (t) => {
    const locks = store.client(t)
    const schedule = locks.schedule(store.key(), EACH_SECOND, () => {
      throw new Error('a mistake')
    })
    const [error] = await within('the error', once(locks, 'error'))
    assert.equal(error.message, 'a mistake')
    await schedule.stop()
  })

  test('if a job throws a value that is not an Error, the value is the cause of the reported error', async (t) => {
    const locks = store.client(t)
    const observed = locks.schedule(store.key(), EACH_SECOND, () => Promise.reject('a mistake'))
    const ofSchedule = await within('the error', new Promise((resolve) => observed.once('error', resolve)))
    await observed.stop()
    const unobserved = locks.schedule(store.key(), EACH_SECOND, () => Promise.reject('a mistake'))
    const [ofClient] = await within('the error', once(locks, 'error'))
    await unobserved.stop()
    for (const error of [ofSchedule, ofClient]) {
      assert.ok(error instanceof Error)
      assert.equal(error.cause, 'a mistake')
    }
  })

  test('a thrown value that cannot be inspected is also reported', async (t) => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const locks = store.client(t)
    const schedule = locks.schedule(store.key(), EACH_SECOND, () => Promise.reject(proxy))
    const [error] = await within(
      'the error',
      new Promise((resolve) => schedule.once('error', (...args) => resolve(args))),
    )
    await schedule.stop()
    assert.ok(error instanceof Error && error.cause === proxy)
    assert.equal(error.message, 'what was thrown is not an Error, but object')
  })

  test('a schedule that starts soon after a tick catches up with it, once in the cluster', async (t) => {
    const [a, b, c] = [store.client(t), store.client(t), store.client(t)]
    const name = store.key()
    const runs = []
    const job = (_, tick) => runs.push(tick.getTime())
    // The last tick is less than two hours ago, and the next one is not due during the test.
    const options = { catchUp: 2 * 3_600_000 }
    const first = a.schedule(name, '0 * * * *', job, options)
    await once(first, 'run')
    const second = b.schedule(name, '0 * * * *', job, options)
    const late = c.schedule(name, '0 0 1 1 *', job)
    await until('the second to ask', () => b.stats().contended > 0)
    await Promise.all([first, second, late].map((schedule) => schedule.stop()))
    assert.equal(runs.length, 1)
    assert.equal(runs[0] % 3_600_000, 0)
    assert.ok(runs[0] <= Date.now() && runs[0] > Date.now() - options.catchUp)
  })

  test('a client has one schedule of a name at a time, and other clients may have it, too', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const name = store.key()
    const begin = (locks) => locks.schedule(name, '@daily', () => {}, { catchUp: 1_000 })
    const assertRefused = (locks) =>
      assert.throws(() => begin(locks), {
        name: 'TypeError',
        code: 'ERR_INVALID_ARG_VALUE',
        message: new RegExp(`has a schedule "${name}" already\\. Stop that first`),
      })
    const first = begin(a)
    const other = begin(b)
    assertRefused(a)
    assert.notEqual(first.next, null, 'the first goes on')
    assert.throws(() => a.schedule(`${name}-2`, '99 * * * *', () => {}))
    const another = a.schedule(`${name}-2`, '@daily', () => {}, { catchUp: 1_000 })
    const stopped = first.stop()
    const second = begin(a)
    await Promise.all([stopped, first.stop()])
    assertRefused(a)
    await Promise.all([second, other, another].map((schedule) => schedule.stop()))
  })

  test('the name of a stopped schedule is free while its job runs, and two jobs never overlap', async (t) => {
    const locks = store.client(t)
    const name = store.key()
    const { runs, job } = manualJob()
    const first = locks.schedule(name, EACH_SECOND, job)
    await until('a run', () => runs.length === 1)
    const stopped = first.stop()
    const second = locks.schedule(name, EACH_SECOND, job)
    await within('a tick to be skipped', once(second, 'skipped'))
    assert.equal(runs.length, 1)
    runs[0].end()
    await stopped
    await until('the next run', () => runs.length === 2)
    runs[1].end()
    await second.stop()
  })

  test('close() of the client stops its schedules', async (t) => {
    const locks = store.client(t)
    const schedule = locks.schedule(store.key(), EACH_SECOND, () => {})
    await once(schedule, 'run')
    await locks.close()
    assert.equal(schedule.next, null)
    await schedule.stop()
    assert.throws(() => locks.schedule('name', EACH_SECOND, () => {}), LockClosedError)
  })
})

describe('schedule: a store that fails', { timeout: 60_000 }, () => {
  test('no job runs, and the missed event has the error', async (t) => {
    const locks = createLockClient(`redis://127.0.0.1:${await freePort()}`)
    atEnd(t, () => locks.close())
    const schedule = locks.schedule('name', EACH_SECOND, () => assert.fail('the job ran without a lock'))
    const ticks = []
    schedule.on('missed', (tick, error) => {
      // A tick without an error is one that this process noticed too late.
      assert.equal(error?.code ?? 'ERR_STORE_UNAVAILABLE', 'ERR_STORE_UNAVAILABLE')
      if (error) ticks.push(tick.getTime())
    })
    await until('two missed ticks', () => ticks.length === 2)
    await schedule.stop()
    assert.ok(ticks[1] > ticks[0] && (ticks[1] - ticks[0]) % SECOND === 0, String(ticks))
  })
})

describe('schedule: a store that fails, without a listener', { timeout: 60_000 }, () => {
  test('a missed tick without a listener is an error of the client, and none with a listener', async (t) => {
    const locks = createLockClient(`redis://127.0.0.1:${await freePort()}`)
    atEnd(t, () => locks.close())
    const schedule = locks.schedule('name', EACH_SECOND, () => assert.fail('the job ran without a lock'))
    const [error] = await within('the error', once(locks, 'error'))
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    assert.match(error.key, /^name@once:\d+$/, 'the key names the tick')
    locks.on('error', () => assert.fail('the missed tick is also an error of the client'))
    await new Promise((resolve) => schedule.on('missed', (_, why) => why && resolve()))
    await schedule.stop()
  })
})

describe('schedule: the clock', { timeout: 60_000 }, () => {
  /** Stops the clock of this process at `instant` until the test is over or sets it again. */
  const setClock = (t, instant) => t.mock.method(Date, 'now', () => Date.parse(instant))

  const nextOf = (t, cron, instant, timeZone) => {
    setClock(t, instant)
    const locks = createLockClient('memory:ticks')
    atEnd(t, () => locks.close())
    const schedule = locks.schedule('name', cron, () => {}, { timeZone, unref: true, catchUp: 1_000 })
    return schedule.next.toISOString()
  }

  for (const [what, cron, timeZone, instant, expected] of [
    ['UTC is the default', '0 3 * * *', undefined, '2026-07-01T00:00:00Z', '2026-07-01T03:00:00.000Z'],
    ['a pattern in summer time', '0 3 * * *', 'Europe/Berlin', '2026-07-01T00:00:00Z', '2026-07-01T01:00:00.000Z'],
    ['a pattern in winter time', '0 3 * * *', 'Europe/Berlin', '2026-12-01T00:00:00Z', '2026-12-01T02:00:00.000Z'],
    [
      'a tick in the skipped hour is after it',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-03-28T22:00:00Z',
      '2026-03-29T01:00:00.000Z',
    ],
    [
      'a tick in the repeated hour is in the first one',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-10-24T22:00:00Z',
      '2026-10-25T00:30:00.000Z',
    ],
    [
      'a tick is not repeated in the second hour',
      '30 2 * * *',
      'Europe/Berlin',
      '2026-10-25T00:45:00Z',
      '2026-10-26T01:30:00.000Z',
    ],
    [
      'a tick of several hours is not repeated either',
      '30 2,14 * * *',
      'Europe/Berlin',
      '2026-10-25T00:45:00Z',
      '2026-10-25T13:30:00.000Z',
    ],
    [
      'a tick each half hour is in both hours',
      '*/30 * * * *',
      'Europe/Berlin',
      '2026-10-25T00:45:00Z',
      '2026-10-25T01:00:00.000Z',
    ],
    [
      'America/New_York changes a week later',
      '30 1 * * *',
      'America/New_York',
      '2026-11-01T05:45:00Z',
      '2026-11-02T06:30:00.000Z',
    ],
    ['L is the last of February', '0 0 L 2 *', 'UTC', '2026-02-01T00:00:00Z', '2026-02-28T00:00:00.000Z'],
    ['@daily is midnight in the time zone', '@daily', 'Asia/Tokyo', '2026-01-01T00:00:00Z', '2026-01-01T15:00:00.000Z'],
  ]) {
    test(`time zones: ${what}`, (t) => assert.equal(nextOf(t, cron, instant, timeZone), expected))
  }

  test('a machine that slept through many ticks runs the last one, and reports the others as missed', async (t) => {
    let now = Date.parse('2026-01-01T00:00:00.500Z')
    t.mock.method(Date, 'now', () => now)
    const locks = createLockClient('memory:asleep')
    atEnd(t, () => locks.close())
    const runs = []
    const missed = []
    const schedule = locks.schedule('name', '* * * * *', (_, tick) => runs.push(tick.toISOString()), {
      catchUp: 600_000,
    })
    schedule.on('missed', (tick, error) => missed.push([tick.toISOString(), error]))
    await until('the first tick', () => runs.length === 1)
    assert.deepEqual(runs, ['2026-01-01T00:00:00.000Z'])
    now = Date.parse('2026-01-01T08:30:30.000Z')
    await until('the last tick', () => runs.length === 2)
    assert.equal(runs[1], '2026-01-01T08:30:00.000Z')
    assert.deepEqual(missed, [['2026-01-01T00:01:00.000Z', null]])
    assert.equal(schedule.next.toISOString(), '2026-01-01T08:31:00.000Z')
    now = Date.parse('2026-01-01T07:00:30.000Z')
    await until('the schedule to follow the clock', () => schedule.next.getTime() < now + 60_000)
    await schedule.stop()
    assert.equal(runs.length, 2)
  })
})
