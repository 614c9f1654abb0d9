// A quorum repairs leases: servers that were away while a lease was held, and don't know it any more, get it back with the
// renewals. So it outlives more failures than a quorum bears at one time, as long as there is time between them.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

const TTL = 1_500
const KEY = 'k'
const LOCK = `lock:${KEY}`

/** Five servers that keep what they are told, and clients of all of them: { servers, connect(options) }. */
async function startQuorum(t) {
  const servers = await Promise.all([1, 2, 3, 4, 5].map(() => startRedis(t, { keep: true })))
  const connect = (options = {}) => {
    const locks = createLockClient({ store: servers.map((server) => server.url()), ttl: TTL, ...options })
    atEnd(t, () => locks.close())
    return locks
  }
  return { servers, connect }
}

/** For each server, whether it knows a lease of the lock: 1, 0, or - for one that does not answer. */
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

/** Resolves when what the lease had at servers that are away has ended. */
const untilForgotten = () => sleep(TTL * 1.2)

/** Fails with what the servers have unless the lease is still held after a ttl and more. */
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

describe('process: a quorum repairs leases', { timeout: 120_000 }, () => {
  for (const [how, { leave, back }] of Object.entries(AWAY)) {
    test(`two of five servers ${how}, back for seven renewals; then a third one dies: the lease is held`, async (t) => {
      const { servers, connect } = await startQuorum(t)
      const locks = connect()
      const lease = await locks.acquire(KEY)
      for (const server of servers.slice(0, 2)) await leave(server)
      await untilForgotten()
      for (const server of servers.slice(0, 2)) await back(server)
      await renewals(locks, lease, 7)
      assert.deepEqual((await locks.inspect(KEY)).servers, { held: 5, total: 5 })
      await servers[2].kill()
      await assertHeldOn(servers, lease)
      assert.equal(await exists(servers), '1 1 - 1 1')
      assert.equal(await lease.release(), true)
      await until('the lease to be gone everywhere', async () => (await exists(servers)) === '0 0 - 0 0')
    })
  }

  test('a restart of one server after the other: six leases that are held all the time are kept', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const locks = connect()
    const leases = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map((key) => locks.acquire(key)))
    for (const server of servers) {
      await server.kill()
      await untilForgotten()
      await server.start()
      await renewals(locks, leases[0], leases.length * 3)
    }
    await sleep(TTL)
    const lost = leases.filter((lease) => !lease.isHeld).map((lease) => `${lease.key}: ${lease.signal.reason?.reason}`)
    assert.deepEqual(lost, [])
    for (const lease of leases) assert.equal(await lease.release(), true)
  })

  test('inspect() tells at how many servers a lease stands, and diagnose() of servers that lack it', async (t) => {
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
    await until('a renewal at the others', async () => {
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
    // Another client's minority keeps the lease away from a server.
    await servers[0].ask('SET', LOCK, 'another', 'PX', 20_000)
    await lease.renew()
    await until('it to be told', async () => {
      const told = await missing(locks)
      return told.length === 1 && told[0][0] === servers[0].url() && told[0][1] === 'warning'
    })
    assert.equal(await lease.release(), true)
  })

  test('servers that others wait at get the lease back, too, and the waiter has its turn after it', async (t) => {
    const { servers, connect } = await startQuorum(t)
    const [locks, others] = [connect(), connect({ name: 'others' })]
    const lease = await locks.acquire(KEY)
    const waiting = others.acquire(KEY, { wait: 60_000 })
    waiting.catch(() => {})
    await until('it to wait', async () => (await locks.inspect(KEY))?.waiters.length === 1)
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
})
