// Calls that fail fast, on real Redis servers that are killed or frozen: while the store can't
// grant leases, they reject at once and leave nothing behind. Their error is the one that other
// calls get after their `wait`.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker, QuorumError, StoreUnavailableError } from 'leasehold'
import { now, sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

/** A wait that is longer than each of these tests, in ms. */
const LONG = 120_000
const FAIL_FAST = { failFast: true, wait: LONG }

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, storeTimeout: 500, ...options })
  atEnd(t, () => client.close({ drain: 0 }))
  return client
}

/** Resolves when the client reports that the breaker of one of its servers is in `state`. */
const reported = (locks, state) =>
  within(
    `a breaker to be ${state}`,
    (async () => {
      for (;;) {
        const [health] = await once(locks, 'breaker')
        if (health.state === state) return health
      }
    })(),
  )

/** Makes calls that fail until `count` breakers are open. */
async function untilOpen(locks, count = 1) {
  const isAway = ({ state }) => state === 'open' || state === 'half-open'
  await until('the breaker to open', async () => {
    await locks.tryAcquire('probe').then(
      (lease) => lease?.release(),
      () => {},
    )
    return locks.stats().stores.filter(isAway).length >= count
  })
}

/** The ways to wait for a lock, as calls that take options. */
const CALLS = {
  acquire: (locks, options) => locks.acquire('k', options),
  'acquire without renewal': (locks, options) => locks.acquire('k', { ...options, autoRenew: false }),
  'withLock with a callback': (locks, options) =>
    new Promise((resolve, reject) => {
      locks.withLock('k', options, (error, _lease, done) => done(null, () => (error ? reject(error) : resolve())))
    }),
  'several keys': (locks, options) => locks.acquire(['k', 'l'], options),
  semaphore: (locks, options) => locks.semaphore('few', 3).acquire(options),
  'read lock': (locks, options) => locks.readWriteLock('k').read.acquire(options),
  retry: (locks, options) => locks.acquire('k', { ...options, retry: { retries: Infinity, minDelay: LONG } }),
  once: (locks, options) => locks.once('k', 'id', () => {}, options),
}

// Each test waits for time to pass, with a server of its own.
describe('process: calls that fail fast', { concurrency: 3, timeout: 240_000 }, () => {
  for (const [how, fail, mend] of [
    ['killed', (server) => server.kill(), (server) => server.start()],
    ['frozen', (server) => server.freeze(), (server) => server.thaw()],
  ]) {
    test(`every call rejects at once while a server is ${how}, with the error of other calls, and is served when it is back`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url())
      await locks.ready()
      await fail(server)
      await untilOpen(locks)
      const patient = await timed(() => locks.acquire('k', { wait: 300 }))
      assert.ok(patient.error instanceof StoreUnavailableError, patient.error?.stack)
      assert.ok(patient.ms >= 290, `${patient.ms} ms`)
      for (const [name, call] of Object.entries(CALLS)) {
        const times = []
        for (let i = 0; i < 5; i++) {
          const { ms, error } = await within(
            name,
            timed(() => call(locks, FAIL_FAST)),
          )
          assert.ok(error instanceof StoreUnavailableError, `${name}: ${error?.stack}`)
          const { reason, message } = patient.error
          assert.deepEqual([error.reason, error.message], [reason, message], name)
          times.push(ms)
        }
        assert.ok(Math.min(...times) < 50, `${name}: ${times} ms`)
      }
      // The option of the client counts for calls that have none of their own.
      const failing = clientOf(t, server.url(), FAIL_FAST)
      const { ms } = await timed(() => assert.rejects(failing.acquire('k'), StoreUnavailableError))
      assert.ok(ms < 2_000, `${ms} ms`)
      const waits = failing.acquire('k', { failFast: false })
      const back = reported(locks, 'closed')
      await mend(server)
      await back
      const lease = await within('the call that waits', waits, 5_000)
      await lease.release()
      for (const [name, call] of Object.entries(CALLS)) {
        const held = await within(name, call(failing, {}), 5_000)
        await held?.release?.()
      }
    })

    test(`calls that wait when a server is ${how} reject as soon as its breaker opens, and leave nothing behind`, async (t) => {
      const server = await startRedis(t, { keep: true })
      const [locks, holder] = [clientOf(t, server.url()), clientOf(t, server.url(), { name: 'holder' })]
      const held = await holder.acquire(['k', 'few'], { ttl: 60_000 })
      const calls = Object.entries(CALLS).filter(([name]) => name !== 'once')
      const settled = calls.map(([name, call]) =>
        call(locks, FAIL_FAST).then(
          () => [name, 'acquired'],
          (error) => [name, error.name],
        ),
      )
      // Calls with `retry` have no place in the queue.
      await until('the calls to wait', async () => locks.stats().waiting >= calls.length - 1)
      await until('the call with retry to pause', async () => locks.stats().contended >= 1)
      const opened = reported(locks, 'open')
      await fail(server)
      await untilOpen(locks)
      await opened
      const outcomes = await within('the calls to reject', Promise.all(settled), 2_000)
      assert.deepEqual(
        outcomes,
        calls.map(([name]) => [name, 'StoreUnavailableError']),
      )
      assert.equal(locks.stats().waiting, 0)
      const back = reported(locks, 'closed')
      await mend(server)
      await back
      await held.release().catch(() => {})
      // Nothing of these calls is left at the store, neither leases nor places in the queue.
      await until(
        'nothing to be left',
        async () => {
          const left = await Promise.all(['k', 'l', 'few'].map((key) => locks.inspect(key)))
          return left.every((info) => info === null) && (await server.ask('KEYS', '*:queue')).length === 0
        },
        10_000,
      )
    })
  }

  test('a lease that a frozen server grants to a call that has failed is released', async (t) => {
    const server = await startRedis(t)
    const [locks, other] = [clientOf(t, server.url(), { storeTimeout: 2_000 }), clientOf(t, server.url())]
    await locks.ready()
    await server.freeze()
    const opened = reported(locks, 'open')
    const pending = locks.acquire('late', { ...FAIL_FAST, ttl: 60_000 })
    const failed = assert.rejects(pending, StoreUnavailableError)
    await untilOpen(other)
    await opened
    await within('the call to fail', failed, 1_000)
    await server.thaw()
    // The server carries out the acquire when it resumes, and then the release.
    await until('a fence', async () => (await server.ask('EXISTS', '{lock:late}:fence')) === 1)
    await until('the lock to be free', async () => (await server.ask('EXISTS', 'lock:late')) === 0, 5_000)
  })

  test('a call that fails once while the breaker is closed tries again', async (t) => {
    const server = await startRedis(t)
    let count = 0
    const relay = createServer((socket) => {
      socket.on('error', () => {})
      if (count++ === 0) return socket.destroy()
      const there = connect(server.port, '127.0.0.1')
      there.on('error', () => socket.destroy())
      socket.pipe(there).pipe(socket)
    }).listen(0, '127.0.0.1')
    await once(relay, 'listening')
    atEnd(t, () => relay.close())
    const locks = clientOf(t, `redis://127.0.0.1:${relay.address().port}`)
    const lease = await locks.acquire('k', FAIL_FAST)
    assert.equal(locks.stats().errors, 1)
    assert.ok(count > 1)
    await lease.release()
  })

  test('after a long time without requests, the first call finds that the server is back', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    await locks.ready()
    await server.kill()
    await untilOpen(locks)
    // Probes end ten seconds after the last request. On a busy machine, the last probe takes
    // longer.
    await sleep(13_000)
    await server.start()
    await sleep(1_000)
    assert.notEqual(locks.stats().stores[0].state, 'closed', 'no request, no probe')
    const lease = await locks.acquire('k', FAIL_FAST)
    await lease.release()
    assert.equal(locks.stats().stores[0].state, 'closed')
  })

  test('calls are sent to a server that refuses, and a refused call is not repeated', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    await locks.ready()
    const refusing = reported(locks, 'refusing')
    await server.ask('CONFIG', 'SET', 'maxmemory', 1)
    // The third refusal opens the breaker. Until then, calls try again.
    await assert.rejects(within('the first call', locks.acquire('k', FAIL_FAST), 5_000), { reason: 'full' })
    await refusing
    for (const [name, call] of Object.entries(CALLS)) {
      // A full Redis grants shared leases of a new key.
      if (/semaphore|read/.test(name)) continue
      await assert.rejects(within(name, call(locks, FAIL_FAST), 2_000), { reason: 'full' }, name)
    }
    await server.ask('CONFIG', 'SET', 'maxmemory', 0)
    const lease = await locks.acquire('k', FAIL_FAST)
    await lease.release()
  })

  test('a quorum fails fast while most of its servers are away, and only then', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
    )
    await locks.ready()
    await servers[0].kill()
    await untilOpen(locks)
    for (let i = 0; i < 3; i++) await (await locks.acquire('k', FAIL_FAST)).release()
    const held = await locks.acquire('held')
    const waiting = assert.rejects(locks.acquire('held', FAIL_FAST), (error) => {
      assert.ok(error instanceof QuorumError, error.stack)
      assert.equal(error.votes.length, 3)
      return true
    })
    const pausing = assert.rejects(
      locks.acquire('held', { ...FAIL_FAST, retry: { retries: Infinity, minDelay: LONG } }),
      QuorumError,
    )
    await until('the calls to wait', () => locks.stats().waiting === 1 && locks.stats().contended >= 2)
    await servers[1].kill()
    await untilOpen(locks, 2)
    await within('the calls that wait', Promise.all([waiting, pausing]), 2_000)
    const { error } = await timed(() => locks.acquire('k', { wait: 300 }))
    const times = []
    for (const [name, call] of Object.entries(CALLS)) {
      if (name === 'semaphore') continue
      const { ms, error: failed } = await within(
        name,
        timed(() => call(locks, FAIL_FAST)),
      )
      assert.ok(failed instanceof QuorumError, `${name}: ${failed?.stack}`)
      assert.equal(failed.message, error.message, name)
      assert.deepEqual(
        failed.votes.slice(0, 2).map(({ vote }) => vote),
        ['unreachable', 'unreachable'],
      )
      times.push(ms)
    }
    assert.ok(Math.min(...times) < 50, `${times} ms`)
    const back = reported(locks, 'closed')
    await servers[0].start()
    await back
    await (await within('a lock', locks.acquire('k', FAIL_FAST), 5_000)).release()
    await held.release().catch(() => {})
  })

  test('workers and schedules keep asking, though their client fails fast', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url(), { failFast: true })
    await locks.ready()
    await server.kill()
    await untilOpen(locks)
    const worker = createLockWorker({ client: locks, key: 'work', retryInterval: 50, startWork: () => {} })
    worker.on('error', () => {})
    worker.start()
    atEnd(t, () => worker.stop())
    // The schedule has a tick in this minute, and none for a year after it. The schedule asks the
    // store for that tick until the store answers.
    const date = new Date()
    const tick = [date.getUTCMinutes(), date.getUTCHours(), date.getUTCDate(), date.getUTCMonth() + 1, '*'].join(' ')
    const schedule = locks.schedule('job', tick, () => {}, { catchUp: 600_000 })
    const missed = []
    schedule.on('missed', (...tick) => missed.push(tick))
    // once() of node:events would reject with the errors that they emit before.
    const run = new Promise((resolve) => schedule.once('run', resolve))
    const acquired = new Promise((resolve) => worker.once('acquired', resolve))
    const end = now() + 1_000
    while (now() < end) {
      await assert.rejects(locks.acquire('k', { wait: LONG }), StoreUnavailableError)
      await sleep(50)
    }
    await server.start()
    await within('the work', acquired, 10_000)
    await within('the job', run, 10_000)
    assert.deepEqual(missed, [])
    await schedule.stop()
  })
})
