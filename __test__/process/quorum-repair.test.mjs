// A quorum repairs leases: if a server was away and does not know a held lease any more, it gets
// the lease back with the next renewals. So a lease outlives more failures than a quorum tolerates
// at one time, if there is time between the failures.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

/** The ttl, in ms. If smaller, a busy machine renews too late. If larger, tests take longer. */
const TTL = 2_000
const KEY = 'k'
const LOCK = `lock:${KEY}`

/** Starts five servers that keep their data: { servers, connect(options) }. */
async function startQuorum(t) {
  const servers = await Promise.all([1, 2, 3, 4, 5].map(() => startRedis(t, { keep: true })))
  const connect = (options = {}) => {
    const locks = createLockClient({ store: servers.map((server) => server.url()), ttl: TTL, ...options })
    atEnd(t, () => locks.close())
    return locks
  }
  return { servers, connect }
}

/** Returns for each server whether it knows the lease: 1, 0, or - if the server is not running. */
async function exists(servers) {
  const told = await Promise.all(
    servers.map((server) => (server.isRunning ? server.ask('EXISTS', LOCK) : Promise.resolve('-'))),
  )
  return told.join(' ')
}

/** Resolves when `locks` has renewed its leases `count` more times. */
async function renewals(locks, lease, count) {
  const enough = locks.stats().renewals + count
  await until(`${count} renewals`, () => locks.stats().renewals >= enough || !lease.isHeld, 30_000)
}

/** Resolves when the next server may be restarted, as docs/operations.md tells operators. */
const untilSound = (locks) => until('diagnose() to find nothing', async () => (await locks.diagnose()).ok, 30_000)

/** Resolves when the lease has ended at servers that are away. */
const untilForgotten = () => sleep(TTL * 1.2)

/**
 * Asserts that the lease is still held after 1.5 ttls. The message shows which servers know the
 * lease.
 */
async function assertHeldOn(servers, lease) {
  const before = await exists(servers)
  const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
  await Promise.race([sleep(TTL * 1.5), lost])
  assert.ok(lease.isHeld, `lost (${lease.signal.reason?.reason}); EXISTS said ${before}, then ${await exists(servers)}`)
}

const AWAY = {
  frozen: { leave: (server) => server.freeze(), back: (server) => server.thaw() },
  'killed and started again with their data': {
    leave: (server) => server.kill(),
    back: (server) => server.start(),
  },
}

// The tests mostly wait for renewals.
describe('process: a quorum repairs leases', { concurrency: 3, timeout: 120_000 }, () => {
  for (const [how, { leave, back }] of Object.entries(AWAY)) {
    test(`two of five servers ${how}, and seven renewals later a third server dies: the lease is held`, async (t) => {
      const { servers, connect } = await startQuorum(t)
      const locks = connect()
      const lease = await locks.acquire(KEY)
      for (const server of servers.slice(0, 2)) await leave(server)
      await untilForgotten()
      for (const server of servers.slice(0, 2)) await back(server)
      await renewals(locks, lease, 7)
      await until('all servers to have the lease', async () => (await locks.inspect(KEY))?.servers.held === 5)
      await servers[2].kill()
      await assertHeldOn(servers, lease)
      assert.equal(await exists(servers), '1 1 - 1 1')
      assert.equal(await lease.release(), true)
      await until('the lease to be gone everywhere', async () => (await exists(servers)) === '0 0 - 0 0')
    })
  }

  test('all servers restart, one after the other: six held leases are kept', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const locks = connect()
    const leases = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map((key) => locks.acquire(key)))
    for (const server of servers) {
      await server.kill()
      await untilForgotten()
      await server.start()
      await untilSound(locks)
    }
    await sleep(TTL)
    const lost = leases.filter((lease) => !lease.isHeld).map((lease) => `${lease.key}: ${lease.signal.reason?.reason}`)
    assert.deepEqual(lost, [])
    for (const lease of leases) assert.equal(await lease.release(), true)
  })

  test('diagnose() has a finding as long as a restarted server that is slow lacks the lease', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const [server, ...others] = servers
    const relay = await startRelay(t, server.port)
    const store = [`redis://127.0.0.1:${relay.port}`, ...others.map((other) => other.url())]
    const locks = connect({ store })
    const lease = await locks.acquire(KEY)
    // A renewal is decided long before this server answers.
    relay.slow(30)
    for (let round = 0; round < 3; round++) {
      await server.kill()
      await untilForgotten()
      await server.start()
      await untilSound(locks)
      assert.equal(await exists(servers), '1 1 1 1 1')
    }
    assert.equal(await lease.release(), true)
  })

  test('all servers restart, one after the other: two readers keep their leases', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const readers = await Promise.all(
      [connect(), connect()].map(async (locks) => {
        const lease = await locks.readWriteLock(KEY).read.acquire()
        return { locks, lease }
      }),
    )
    for (const server of servers) {
      await server.kill()
      await untilForgotten()
      await server.start()
      await Promise.all(readers.map(({ locks, lease }) => renewals(locks, lease, 5)))
      const lost = readers.filter(({ lease }) => !lease.isHeld).map(({ lease }) => lease.signal.reason?.reason)
      assert.deepEqual(lost, [])
      assert.equal(await server.ask('ZCARD', LOCK), 2, 'both readers have the server again')
    }
    for (const { lease } of readers) assert.equal(await lease.release(), true)
  })

  test('the lease of a reader that was adopted comes back as a shared lease', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const [locks, heirs] = [connect({ ttl: 30_000 }), connect({ ttl: 30_000 })]
    const ticket = await (await locks.readWriteLock(KEY).read.acquire()).detach()
    const lease = await heirs.adopt(ticket)
    await servers[0].restartEmpty()
    await until('the lease to be at all servers', async () => {
      await lease.renew().catch(() => {})
      return (await exists(servers)) === '1 1 1 1 1'
    })
    assert.equal(await servers[0].ask('TYPE', LOCK), 'zset', 'readers can share the lock at this server')
    const other = await locks.readWriteLock(KEY).read.acquire()
    assert.equal(await servers[0].ask('ZCARD', LOCK), 2)
    for (const held of [lease, other]) assert.equal(await held.release(), true)
  })

  test('inspect() shows how many servers have a lease, and diagnose() names a server that lacks it', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const [locks, others] = [connect({ ttl: 30_000 }), connect({ name: 'others' })]
    const lease = await locks.acquire(KEY)
    const missing = async (client) =>
      (await client.diagnose()).findings
        .filter(({ code }) => code === 'missing-leases')
        .map(({ store, level }) => [store, level])
    await lease.renew()
    assert.deepEqual(await missing(locks), [])
    await servers[0].restartEmpty()
    await servers[1].restartEmpty()
    assert.deepEqual((await others.inspect(KEY)).servers, { held: 3, total: 5 })
    await until('the lease to be at all servers', async () => {
      const told = await lease.renew().then(
        () => missing(locks),
        () => [],
      )
      return told.length === 0 && (await exists(servers)) === '1 1 1 1 1'
    })
    const [info] = (await others.list()).locks
    assert.deepEqual(
      [info.servers, info.leases[0].servers],
      [
        { held: 5, total: 5 },
        { held: 5, total: 5 },
      ],
    )
    // Another client has the lock at this server, so the server does not get the lease back.
    await servers[0].ask('SET', LOCK, 'another', 'PX', 20_000)
    await lease.renew()
    await until('diagnose() to name the server', async () => {
      const told = await missing(locks)
      return told.length === 1 && told[0][0] === servers[0].url() && told[0][1] === 'warning'
    })
    assert.equal(await lease.release(), true)
  })

  test('a lease that is released by force does not come back, although its holder renews it all the time', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const relays = await Promise.all(servers.map(({ port }) => startRelay(t, port)))
    const locks = connect({ ttl: 20_000 })
    const others = connect({ store: relays.map(({ port }) => `redis://127.0.0.1:${port}`) })
    const lease = await locks.acquire(KEY)
    assert.deepEqual((await others.inspect(KEY)).servers, { held: 5, total: 5 })
    let lost
    lease.signal.addEventListener('abort', () => {
      lost = lease.signal.reason
    })
    const renewing = (async () => {
      while (lease.isHeld) await lease.renew()
    })()
    renewing.catch(() => {})
    // Three servers get the release one after the other, and two do not.
    for (const [i, relay] of relays.entries()) {
      if (i < 3) relay.slow(i * 150, { directions: ['toServer'] })
      else relay.bar()
    }
    assert.equal(await others.forceRelease(KEY), true)
    await until('the lease to be lost', () => lost, 5_000)
    assert.match(lost.reason, /^(missing|taken)$/)
    for (const relay of relays) await relay.heal()
    await (await others.acquire(KEY, { wait: 30_000 })).release()
  })

  test('servers with a waiter get the lease back, too, and the waiter is served after the release', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const [locks, others] = [connect(), connect({ name: 'others' })]
    const lease = await locks.acquire(KEY)
    const waiting = others.acquire(KEY, { wait: 60_000 })
    waiting.catch(() => {})
    await until('the other client to wait', async () => (await locks.inspect(KEY))?.waiters.length === 1)
    for (const server of servers.slice(0, 2)) await server.kill()
    await untilForgotten()
    for (const server of servers.slice(0, 2)) await server.start()
    await renewals(locks, lease, 12)
    await servers[2].kill()
    await assertHeldOn(servers, lease)
    await lease.release()
    const next = await waiting
    assert.ok(next.fence > lease.fence, `${next.fence} after ${lease.fence}`)
    await next.release()
  })

  test('servers where short waiters follow one another get the lease back after one renewal', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const locks = connect({ ttl: 30_000 })
    const lease = await locks.acquire(KEY)
    let served = 0
    const stop = new AbortController()
    // While one waiter has a server, others wait there, so the server is never free.
    const stream = [1, 2, 3, 4, 5].map(async (i) => {
      const others = connect({ name: `waiter ${i}`, ttl: 30_000 })
      while (!stop.signal.aborted) {
        const got = await others.acquire(KEY, { wait: 1_000, signal: stop.signal }).catch(() => null)
        if (got) served += 1
        await got?.release()
        await sleep(100 * i)
      }
    })
    for (const server of servers.slice(0, 2)) await server.restartEmpty()
    const holders = () => Promise.all(servers.map((server) => server.ask('GET', LOCK)))
    await until('waiters to have both servers', async () => {
      const [first, second, third] = await holders()
      return first && second && first !== third && second !== third
    })
    await lease.renew()
    await until('the lease to be at all servers', async () => new Set(await holders()).size === 1, 5_000)
    assert.deepEqual((await locks.inspect(KEY)).servers, { held: 5, total: 5 })
    await lease.renew()
    await servers[2].kill()
    await lease.renew()
    assert.ok(lease.isHeld)
    assert.equal(served, 0)
    assert.equal(await lease.release(), true)
    await until('a waiter to be served', () => served > 0, 5_000)
    stop.abort()
    await Promise.all(stream)
  })
})
