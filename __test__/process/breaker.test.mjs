// Circuit breakers: a server that is gone costs no time-outs, whoever waits goes on waiting, and service is back within a
// second of the server. All on a real one, which is frozen, killed, started again, or never was there.

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

/** What a client tells of its breaker, from now on. */
const watch = (locks) => {
  const told = []
  locks.on('breaker', (health) => told.push({ ...health, at: now() }))
  return told
}

const states = (told) => told.map(({ state }) => state)

/** Asks in vain until the breaker is open; says how often it had to. */
async function untilOpen(locks) {
  for (let tries = 1; ; tries++) {
    await assert.rejects(locks.tryAcquire('k'), StoreUnavailableError)
    if (locks.stats().stores[0].state !== 'closed') return tries
    assert.ok(tries < 10, 'it does not open')
  }
}

// Each waits for time to pass, in processes and at a server of its own.
describe('process: circuit breakers', { concurrency: 3, timeout: 240_000 }, () => {
  test('nobody listens: after three tries it fails at once, saying why in the same words each time', async (t) => {
    const port = await freePort()
    const locks = clientOf(t, `redis://someone:${SECRET}@127.0.0.1:${port}`)
    const told = watch(locks)
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
    await until('it to be told', () => told.length > 0)
    const { at: _, ...first } = told[0]
    assert.deepEqual({ ...first, since: 0 }, { ...health, since: 0, state: 'open', failures: 3 })
  })

  test('a server of a quorum that is full, or is no master any more, is told although no call fails', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
    )
    const told = watch(locks)
    const lock = () => locks.withLock('k', () => {})
    const untilTold = (count) =>
      until(`${count} to be told`, async () => {
        await lock()
        return told.length >= count
      })
    for (const [reason, begin, end] of [
      ['full', ['CONFIG', 'SET', 'maxmemory', 1], ['CONFIG', 'SET', 'maxmemory', 0]],
      ['readonly', ['REPLICAOF', '127.0.0.1', servers[0].port], ['REPLICAOF', 'NO', 'ONE']],
    ]) {
      told.length = 0
      await servers[2].ask(...begin)
      await untilTold(1)
      const health = locks.stats().stores[2]
      assert.deepEqual([told[0].store, told[0].state, told[0].reason], [servers[2].url(), 'refusing', reason])
      assert.deepEqual([health.state, health.reason], ['refusing', reason])
      assert.ok(health.failures >= 3, `${health.failures}`)
      await servers[2].ask(...end)
      await untilTold(2)
      assert.deepEqual(states(told), ['refusing', 'closed'])
      assert.deepEqual([told[1].failures, told[1].reason], [0, undefined])
    }
  })

  test('a full server is not announced as back because it can say that a semaphore is taken', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const few = locks.semaphore('few', 1)
    const permit = await few.acquire()
    const told = watch(locks)
    await server.ask('CONFIG', 'SET', 'maxmemory', 1)
    await until('it to be told', async () => {
      await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
      return told.length > 0
    })
    for (let i = 0; i < 5; i++) assert.equal(await few.tryAcquire(), null)
    await assert.rejects(locks.tryAcquire('k'), { reason: 'full' })
    assert.deepEqual(states(told), ['refusing'])
    await server.ask('CONFIG', 'SET', 'maxmemory', 0)
    await permit.release()
    await locks.withLock('k', () => {})
    await until('it to be told', () => told.length > 1)
    assert.deepEqual(states(told), ['refusing', 'closed'])
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
      const told = watch(locks)
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
      await until('it to be told', () => told.length > 0)
      await sleep(2_000)
      assert.deepEqual(states(told), ['refusing'], JSON.stringify(counts))
      await server.ask('CONFIG', 'SET', 'maxmemory', 0)
      await until('it to be told', () => told.length > 1)
      asking = false
      await asked
      assert.deepEqual(states(told), ['refusing', 'closed'])
      t.diagnostic(JSON.stringify(counts))
    })
  }

  test('rights that one key lacks say nothing of the server', async (t) => {
    const rules = '~lock:* ~{lock:* &* +@all'
    const server = await startRedis(t, { user: { name: 'app', password: SECRET, rules } })
    const store = server.url(`app:${SECRET}`)
    const [mine, other] = [clientOf(t, store), clientOf(t, store, { prefix: 'other:' })]
    const told = watch(mine)
    for (let i = 0; i < 10; i++) await assert.rejects(other.tryAcquire('k'), { reason: 'denied' })
    assert.equal(mine.stats().stores[0].state, 'closed')
    await mine.withLock('k', () => {})
    assert.deepEqual(told, [])
  })

  test('a server of a quorum with fewer replicas than minReplicas is told although no call fails', async (t) => {
    const servers = await Promise.all([1, 2, 3].map(() => startRedis(t)))
    for (const { port } of servers.slice(0, 2)) {
      const replica = await startRedis(t, { replicaOf: port })
      await until('it to follow', async () => /master_link_status:up/.test(await replica.ask('INFO', 'replication')))
    }
    const locks = clientOf(
      t,
      servers.map((server) => server.url()),
      { minReplicas: 1 },
    )
    const told = watch(locks)
    await until('it to be told', async () => {
      await locks.withLock('k', () => {})
      return told.length > 0
    })
    assert.deepEqual([told[0].store, told[0].state, told[0].reason], [servers[2].url(), 'refusing', 'timeout'])
  })

  test('a wrong password: each call says so, and that the server refuses is told once', async (t) => {
    const server = await startRedis(t, { password: SECRET })
    const locks = clientOf(t, server.url(':wrong'))
    const told = watch(locks)
    for (let i = 0; i < 10; i++) {
      const { error } = await timed(() => locks.tryAcquire('k'))
      assert.deepEqual([error.name, error.reason], ['StoreUnavailableError', 'denied'])
      assert.doesNotMatch(error.message, /not asked again/)
    }
    await until('it to be told', () => told.length > 0)
    assert.deepEqual(states(told), ['refusing'])
  })

  for (const [how, fail, mend] of [
    ['frozen', (server) => server.freeze(), (server) => server.thaw()],
    ['killed', (server) => server.kill(), (server) => server.start()],
  ]) {
    test(`a server that is ${how}: tryAcquire fails at once, and service is back within a second of it`, async (t) => {
      const server = await startRedis(t)
      const locks = clientOf(t, server.url(), { storeTimeout: 500 })
      const told = watch(locks)
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
      assert.ok(slowest < 300, `the slowest of them took ${slowest} ms`)
      await mend(server)
      const back = now()
      const lease = await until('the lock', () => locks.tryAcquire('k').catch(() => null), 5_000)
      const ms = now() - back
      assert.ok(ms < 1_000, `${ms} ms`)
      await lease.release()
      await until('the last word', () => states(told).at(-1) === 'closed')
      assert.deepEqual(states(told), ['open', 'closed'], 'whatever was tried between')
      const [health] = locks.stats().stores
      assert.deepEqual({ ...health, since: 0 }, { store: server.url(), state: 'closed', failures: 0, since: 0 })
      t.diagnostic(`back after ${ms.toFixed(0)} ms, slowest refusal ${slowest.toFixed(1)} ms`)
    })

    test(`those who wait at a server that is ${how} go on, and are served within a second of it`, async (t) => {
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
      assert.equal(early, undefined, 'they still wait')
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

  test('waiting ends by its own time: for a server that is not there as such, for a held lock as a time-out', async (t) => {
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

  test('leases of a short ttl outlive an outage that is shorter than that', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const other = clientOf(t, server.url(), { storeTimeout: 100 })
    const leases = await Promise.all(Array.from({ length: 20 }, () => locks.acquire(randomUUID(), { ttl: 1_500 })))
    // Whoever asks meanwhile opens the breaker.
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

  test('one client finds out, and the others of that store know; one that is opened then is told', async (t) => {
    const port = await freePort()
    const store = `redis://127.0.0.1:${port}`
    const [one, other] = [clientOf(t, store), clientOf(t, store)]
    const told = watch(other)
    await untilOpen(one)
    await until('the other to be told', () => states(told).includes('open'))
    assert.notEqual(other.stats().stores[0].state, 'closed')
    const late = clientOf(t, store)
    const [health] = await within('the late one to be told', once(late, 'breaker'))
    assert.equal(health.state, 'open')
    assert.equal(health.reason, 'unreachable')
    assert.notEqual(late.stats().stores[0].state, 'closed')
    const { ms } = await timed(() => late.tryAcquire('k').catch(() => {}))
    assert.ok(ms < 100, `${ms} ms`)
  })

  test('a listener that throws breaks nothing: the exception is uncaught, and everybody else is told', async (t) => {
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
    const told = watch(other)
    await untilOpen(one)
    const [error] = await within('the exception', uncaught)
    assert.equal(error.message, 'a mistake of the user')
    await until('the other to be told', () => told.length > 0)
  })

  test('neither a breaker that is open nor whoever listens keeps the process alive', async (t) => {
    const store = `redis://127.0.0.1:${await freePort()}`
    const child = startChild(t, 'alive.mjs', { store, left: 'breaker' })
    const { at } = await child.next('last-line')
    const ended = await within('the end of the process', child.ended, 10_000)
    assert.deepEqual(ended, { code: 0, signal: null }, child.stderr)
    assert.ok(now() - at < 1_000, `${now() - at} ms`)
  })
})
