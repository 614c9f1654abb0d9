// Circuit breakers on real servers, which the tests freeze, kill, restart or never start. While a
// server does not answer, calls fail without waiting for a time-out, and waiters keep waiting.
// Service is back within a second of the server.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { createLockClient, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis } from '../support/servers.mjs'

const SECRET = 'hunter2-is-a-secret'

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

/** Collects the breaker events of a client. */
const watch = (locks) => {
  const events = []
  locks.on('breaker', (health) => events.push({ ...health, at: now() }))
  return events
}

const states = (events) => events.map(({ state }) => state)

/** Makes calls that fail until the breaker is open. Returns the number of calls. */
async function untilOpen(locks) {
  for (let tries = 1; ; tries++) {
    await assert.rejects(locks.tryAcquire('k'), StoreUnavailableError)
    if (locks.stats().stores[0].state !== 'closed') return tries
    assert.ok(tries < 10, 'the breaker does not open')
  }
}

// Each test waits for time to pass, with a server of its own.
describe('process: circuit breakers', { concurrency: 3, timeout: 240_000 }, () => {
  test('without a server, calls fail at once after three tries, each with the same reason', async (t) => {
    const port = await freePort()
    const locks = clientOf(t, `redis://someone:${SECRET}@127.0.0.1:${port}`)
    const events = watch(locks)
    assert.equal(locks.stats().stores[0].state, 'closed')
    assert.equal(await untilOpen(locks), 3)
    const messages = new Set()
    for (let i = 0; i < 50; i++) {
      const { error, ms } = await timed(() => locks.tryAcquire('k'))
      assert.equal(error.reason, 'unreachable')
      assert.match(error.message, /refused.*failed several times in a row/)
      assert.ok(!error.message.includes(SECRET))
      messages.add(error.message)
      assert.ok(ms < 100, `${ms} ms`)
    }
    assert.equal(messages.size, 1, [...messages].join('\n'))
    const [health] = locks.stats().stores
    assert.equal(health.store, `redis://someone@127.0.0.1:${port}`)
    assert.equal(health.reason, 'unreachable')
    assert.ok(health.failures >= 3)
    assert.ok(Math.abs(Date.now() - health.since) < 10_000, `${health.since}`)
    await until('the event', () => events.length > 0)
    const { at: _, ...first } = events[0]
    assert.deepEqual({ ...first, since: 0 }, { ...health, since: 0, state: 'open', failures: 3 })
  })

  test('a full or demoted server of a quorum is reported although no call fails', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
    )
    const events = watch(locks)
    const lock = () => locks.withLock('k', () => {})
    const untilReported = (count) =>
      until(`${count} events`, async () => {
        await lock()
        return events.length >= count
      })
    for (const [reason, begin, end] of [
      ['full', ['CONFIG', 'SET', 'maxmemory', 1], ['CONFIG', 'SET', 'maxmemory', 0]],
      ['readonly', ['REPLICAOF', '127.0.0.1', servers[0].port], ['REPLICAOF', 'NO', 'ONE']],
    ]) {
      events.length = 0
      await servers[2].ask(...begin)
      await untilReported(1)
      const health = locks.stats().stores[2]
      assert.deepEqual([events[0].store, events[0].state, events[0].reason], [servers[2].url(), 'refusing', reason])
      assert.deepEqual([health.state, health.reason], ['refusing', reason])
      assert.ok(health.failures >= 3, `${health.failures}`)
      await servers[2].ask(...end)
      await untilReported(2)
      assert.deepEqual(states(events), ['refusing', 'closed'])
      assert.deepEqual([events[1].failures, events[1].reason], [0, undefined])
    }
  })

  test('a full server that can still report a taken semaphore is not reported as back', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const few = locks.semaphore('few', 1)
    const permit = await few.acquire()
    const events = watch(locks)
    await server.ask('CONFIG', 'SET', 'maxmemory', 1)
    await until('the event', async () => {
      await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
      return events.length > 0
    })
    for (let i = 0; i < 5; i++) assert.equal(await few.tryAcquire(), null)
    await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
    assert.deepEqual(states(events), ['refusing'])
    await server.ask('CONFIG', 'SET', 'maxmemory', 0)
    await permit.release()
    await locks.withLock('k', () => {})
    await until('the event', () => events.length > 1)
    assert.deepEqual(states(events), ['refusing', 'closed'])
  })

  for (const [what, room, kinds] of [
    ['at the edge of its memory', 20_000, ['exclusive']],
    ['that is full but grants shared leases', 0, ['exclusive', 'shared']],
  ]) {
    test(`a server ${what} is reported as refusing once`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url())
      const few = locks.semaphore('few', 5)
      await locks.withLock('warm', () => {})
      const events = watch(locks)
      const used = Number(/used_memory:(\d+)/.exec(await server.ask('INFO', 'memory'))[1])
      await server.ask('CONFIG', 'SET', 'maxmemory', used + room)
      const counts = { granted: 0, refused: 0 }
      let asking = true
      const ask = async (kind, name) => {
        for (let i = 0; asking; i++) {
          try {
            // Each acquire leaves a fence behind, so the server has less and less memory.
            const lease = await (kind === 'shared' ? few.acquire() : locks.tryAcquire(`${name}-${i}`))
            counts.granted++
            await sleep(5)
            await lease.release()
          } catch (error) {
            assert.equal(error.reason, 'full', error.stack)
            counts.refused++
            await sleep(5)
          }
        }
      }
      const asked = Promise.all(Array.from({ length: 20 }, (_, i) => ask(kinds[i % kinds.length], i)))
      await until('the event', () => events.length > 0)
      await sleep(2_000)
      assert.deepEqual(states(events), ['refusing'], JSON.stringify(counts))
      await server.ask('CONFIG', 'SET', 'maxmemory', 0)
      await until('the event', () => events.length > 1)
      asking = false
      await asked
      assert.deepEqual(states(events), ['refusing', 'closed'])
      t.diagnostic(JSON.stringify(counts))
    })
  }

  test('a missing right for one key does not open the breaker of the server', async (t) => {
    const rules = '~lock:* ~{lock:* &* +@all'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const store = server.url(`app:${SECRET}`)
    const [mine, other] = [clientOf(t, store), clientOf(t, store, { prefix: 'other:' })]
    const events = watch(mine)
    for (let i = 0; i < 10; i++) await assert.rejects(other.tryAcquire('k'), { reason: 'denied' })
    assert.equal(mine.stats().stores[0].state, 'closed')
    await mine.withLock('k', () => {})
    assert.deepEqual(events, [])
  })

  test('a server of a quorum with fewer replicas than minReplicas is reported although no call fails', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    for (const { port } of servers.slice(0, 2)) {
      const replica = await startRedis(t, { replicaOf: port })
      await until('the replica to follow', async () =>
        /master_link_status:up/.test(await replica.ask('INFO', 'replication')),
      )
    }
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
      { minReplicas: 1 },
    )
    const events = watch(locks)
    await until('the event', async () => {
      await locks.withLock('k', () => {})
      return events.length > 0
    })
    assert.deepEqual([events[0].store, events[0].state, events[0].reason], [servers[2].url(), 'refusing', 'timeout'])
  })

  test('each call reports a wrong password, and the breaker reports the refusal once', async (t) => {
    const server = await startRedis(t, { password: SECRET })
    const locks = clientOf(t, server.url(':wrong'))
    const events = watch(locks)
    for (let i = 0; i < 10; i++) {
      const { error } = await timed(() => locks.tryAcquire('k'))
      assert.deepEqual([error.name, error.reason], ['StoreUnavailableError', 'denied'])
      assert.doesNotMatch(error.message, /not asked again/)
    }
    await until('the event', () => events.length > 0)
    assert.deepEqual(states(events), ['refusing'])
  })

  for (const [how, fail, mend] of [
    ['frozen', (server) => server.freeze(), (server) => server.thaw()],
    ['killed', (server) => server.kill(), (server) => server.start()],
  ]) {
    test(`tryAcquire fails at once at a server that is ${how}, and service is back within a second of it`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url(), { storeTimeout: 500 })
      const events = watch(locks)
      await locks.ready()
      await fail(server)
      await untilOpen(locks)
      const end = now() + 2_500
      let slowest = 0
      while (now() < end) {
        const { error, ms } = await timed(() => locks.tryAcquire('k'))
        assert.ok(error instanceof StoreUnavailableError, error?.stack)
        slowest = Math.max(slowest, ms)
        await sleep(20)
      }
      assert.ok(slowest < 300, `the slowest refusal took ${slowest} ms`)
      await mend(server)
      const back = now()
      const lease = await until('the lock', () => locks.tryAcquire('k').catch(() => null), 5_000)
      const ms = now() - back
      assert.ok(ms < 1_000, `${ms} ms`)
      await lease.release()
      await until('the last event', () => states(events).at(-1) === 'closed')
      assert.deepEqual(states(events), ['open', 'closed'], 'the probes between are not reported')
      const [health] = locks.stats().stores
      assert.deepEqual({ ...health, since: 0 }, { store: server.url(), state: 'closed', failures: 0, since: 0 })
      t.diagnostic(`back after ${ms.toFixed(0)} ms, slowest refusal ${slowest.toFixed(1)} ms`)
    })

    test(`waiters at a server that is ${how} keep waiting, and are served within a second of its return`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url(), { storeTimeout: 500 })
      await locks.ready()
      await fail(server)
      await untilOpen(locks)
      const waiting = Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          locks.acquire(`k${i % 10}`, { wait: 30_000, ttl: 5_000 }).then((lease) => lease.release()),
        ),
      )
      const early = await Promise.race([waiting.then(() => 'settled', String), sleep(2_000)])
      assert.equal(early, undefined, 'the waiters still wait')
      await mend(server)
      const { ms } = await within(
        'all',
        timed(() => waiting),
        10_000,
      )
      assert.ok(ms < 1_000, `${ms} ms`)
      await waiting
      t.diagnostic(`all served after ${ms.toFixed(0)} ms`)
    })
  }

  test('a wait ends on time, with StoreUnavailableError without a server and LockTimeoutError for a held lock', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url(), { storeTimeout: 200 })
    await locks.acquire('held', { ttl: 60_000 })
    await assert.rejects(locks.acquire('held', { wait: 100 }), LockTimeoutError)
    await server.kill()
    await untilOpen(locks)
    const { error, ms } = await timed(() => locks.acquire('k', { wait: 900 }))
    assert.ok(error instanceof StoreUnavailableError, error?.stack)
    assert.equal(error.reason, 'unreachable')
    assert.ok(ms >= 890 && ms < 1_400, `${ms} ms`)
  })

  test('leases outlive an outage that is shorter than their ttl', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const other = clientOf(t, server.url(), { storeTimeout: 100 })
    const leases = await Promise.all(Array.from({ length: 20 }, () => locks.acquire(randomUUID(), { ttl: 1_500 })))
    // These requests open the breaker while the server is frozen.
    let asking = true
    const asked = (async () => {
      while (asking) {
        await Promise.allSettled(Array.from({ length: 5 }, () => other.tryAcquire(randomUUID(), { ttl: 100 })))
        await sleep(5)
      }
    })()
    try {
      for (let round = 0; round < 3; round++) {
        server.freeze()
        await sleep(600)
        assert.notEqual(other.stats().stores[0].state, 'closed')
        server.thaw()
        await until('the server to be found', () => other.stats().stores[0].state === 'closed', 1_000)
        await sleep(600)
      }
    } finally {
      asking = false
    }
    await asked
    assert.deepEqual(
      leases.map((lease) => lease.isHeld),
      leases.map(() => true),
    )
  })

  test('when one client finds an outage, the other clients of the store know, and a later client gets an event', async (t) => {
    const port = await freePort()
    const store = `redis://127.0.0.1:${port}`
    const [one, other] = [clientOf(t, store), clientOf(t, store)]
    const events = watch(other)
    await untilOpen(one)
    await until('the event of the other client', () => states(events).includes('open'))
    assert.notEqual(other.stats().stores[0].state, 'closed')
    const late = clientOf(t, store)
    const [health] = await within('the event of the late client', once(late, 'breaker'))
    assert.equal(health.state, 'open')
    assert.equal(health.reason, 'unreachable')
    assert.notEqual(late.stats().stores[0].state, 'closed')
    const { ms } = await timed(() => late.tryAcquire('k').catch(() => {}))
    assert.ok(ms < 100, `${ms} ms`)
  })

  test('the exception of a listener is uncaught, and all other listeners get the event', async (t) => {
    const store = `redis://127.0.0.1:${await freePort()}`
    const [one, other] = [clientOf(t, store), clientOf(t, store)]
    const others = process.listeners('uncaughtException')
    process.removeAllListeners('uncaughtException')
    atEnd(t, () => {
      for (const listener of others) process.on('uncaughtException', listener)
    })
    const uncaught = once(process, 'uncaughtException')
    one.once('breaker', () => {
      throw new Error('a mistake of the user')
    })
    const events = watch(other)
    await untilOpen(one)
    const [error] = await within('the exception', uncaught)
    assert.equal(error.message, 'a mistake of the user')
    await until('the event of the other client', () => events.length > 0)
  })

  test('neither an open breaker nor a listener keeps the process alive', async (t) => {
    const store = `redis://127.0.0.1:${await freePort()}`
    const child = startChild(t, 'alive.mjs', { store, left: 'breaker' })
    const { at } = await child.next('last-line')
    const ended = await within('the end of the process', child.ended, 10_000)
    assert.deepEqual(ended, { code: 0, signal: null }, child.stderr)
    assert.ok(now() - at < 1_000, `${now() - at} ms`)
  })
})
