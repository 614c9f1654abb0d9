// Several sites adopt one ticket at the same time over a quorum. Each of these sites is near to one
// server and far from the others. So each site claims its own server first, and no site has a
// majority at first.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { createLockClient, LockError, LockLostError } from 'leasehold'
import { sleep, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

const ROUNDS = Number(process.env.LEASEHOLD_TEST_REPEAT ?? 20)
/** The delays of a request to the near server and to the others, in ms. */
const NEAR = 1
const FAR = 20

/**
 * Starts three servers and `count` sites. Each site has its own relays to the servers. Site i is
 * near to server i; a fourth site is far from all of them.
 *
 * @returns {{ servers, sites: { locks, relays }[] }}
 */
async function startSites(t, count) {
  const servers = await Promise.all([0, 1, 2].map(() => startRedis(t)))
  const sites = []
  for (let site = 0; site < count; site++) {
    const relays = await Promise.all(servers.map(({ port }) => startRelay(t, port)))
    for (const [i, relay] of relays.entries()) relay.slow(i === site ? NEAR : FAR, { directions: ['toServer'] })
    const locks = createLockClient({ store: relays.map(({ port }) => `redis://127.0.0.1:${port}`), ttl: 20_000 })
    atEnd(t, () => locks.close())
    await locks.ready()
    sites.push({ locks, relays })
  }
  return { servers, sites }
}

/**
 * Lets all `sites` adopt a fresh ticket at the same time. Checks that exactly one site gets the
 * lease, that the others reject with the reason `taken`, and that `stranger` can't acquire the
 * lock. Returns how long the adoptions took, in ms.
 */
async function adoptAtOnce(sites, stranger, round) {
  const key = `round ${round}`
  const lease = await stranger.acquire(key, { wait: 10_000 })
  const ticket = await lease.detach()
  const began = performance.now()
  const outcomes = await within(
    'the adoptions',
    Promise.allSettled(sites.map(({ locks }) => locks.adopt(ticket))),
    15_000,
  )
  const took = performance.now() - began
  const reasons = outcomes.map(({ reason }) => reason?.reason ?? String(reason ?? 'adopted'))
  const adopted = outcomes.filter(({ status }) => status === 'fulfilled').map(({ value }) => value)
  assert.equal(adopted.length, 1, `round ${round}: ${reasons}`)
  for (const { reason } of outcomes.filter(({ status }) => status === 'rejected')) {
    assert.ok(reason instanceof LockLostError && reason.reason === 'taken', `round ${round}: ${reasons}`)
  }
  assert.equal(adopted[0].fence, lease.fence)
  assert.equal(await stranger.tryAcquire(key), null, `round ${round}: a stranger has the lock`)
  await adopted[0].renew()
  assert.equal(await adopted[0].release(), true)
  return took
}

/** Repeats {@link adoptAtOnce} `ROUNDS` times, and reports how long the rounds took. */
async function repeat(t, sites, stranger) {
  const times = []
  for (let round = 0; round < ROUNDS; round++) times.push(await adoptAtOnce(sites, stranger, round))
  times.sort((a, b) => a - b)
  t.diagnostic(`${ROUNDS} rounds, median ${times[ROUNDS >> 1].toFixed(0)} ms, longest ${times.at(-1).toFixed(0)} ms`)
}

test('three sites adopt one ticket at once: exactly one gets the lease', async (t) => {
  const { sites } = await startSites(t, 4)
  await repeat(t, sites.slice(0, 3), sites[3].locks)
})

test('two sites adopt one ticket at once while a server is down: exactly one gets the lease', async (t) => {
  const { servers, sites } = await startSites(t, 3)
  await servers[2].kill()
  await repeat(t, sites.slice(0, 2), sites[2].locks)
})

test('two sites adopt one ticket at once while a server is silent: exactly one gets the lease', async (t) => {
  const { sites } = await startSites(t, 3)
  for (const { relays } of sites) relays[2].bar()
  await repeat(t, sites.slice(0, 2), sites[2].locks)
})

test('the adopter gets the servers of the adopters that lost, and its release frees all servers', async (t) => {
  const { servers, sites } = await startSites(t, 3)
  const [first, second, stranger] = sites.map(({ locks }) => locks)
  for (let round = 0; round < ROUNDS; round++) {
    const key = `round ${round}`
    const tokens = () => Promise.all(servers.map((server) => server.ask('GET', `lock:${key}`)))
    const ticket = await (await stranger.acquire(key)).detach()
    const outcomes = await Promise.allSettled([first.adopt(ticket), second.adopt(ticket)])
    const [lease] = outcomes.filter(({ status }) => status === 'fulfilled').map(({ value }) => value)
    // The adopter gets the servers before its first renewal, which is due after a third of 20 s.
    await until(`round ${round}: all servers to have one token`, async () => new Set(await tokens()).size === 1, 5_000)
    if (round % 2) await lease.renew()
    assert.equal(await lease.release(), true)
    await until(`round ${round}: all servers to be free`, async () => (await tokens()).every((token) => !token), 5_000)
  }
})

test('the adopter gets a server that was down during the adoption, and then another server may fail', async (t) => {
  const servers = await Promise.all([0, 1, 2].map(() => startRedis(t, { keep: true })))
  const locks = createLockClient({ store: servers.map((server) => server.url()), ttl: 3_000 })
  atEnd(t, () => locks.close())
  const ticket = await (await locks.acquire('k')).detach(60_000)
  const tokens = () => Promise.all(servers.map((server) => server.ask('GET', 'lock:k')))
  await until('the ticket to be everywhere', async () => new Set(await tokens()).size === 1)
  await servers[2].kill()
  const lease = await locks.adopt(ticket)
  await servers[2].start()
  // The server refuses requests while it reads its file.
  const seen = async () => new Set(await tokens().catch(() => []))
  await until('all servers to have one token', async () => (await seen()).size === 1, 10_000)
  const enough = locks.stats().renewals + 1
  await until('a renewal', () => locks.stats().renewals >= enough)
  await servers[0].kill()
  const more = locks.stats().renewals + 4
  await until('four renewals', () => locks.stats().renewals >= more || !lease.isHeld)
  assert.ok(lease.isHeld)
  assert.equal(await lease.release(), true)
})

for (const [how, adopters] of [
  ['down', [1, 1, 0, 2]],
  ['silent', [0, 0, 0, 0]],
]) {
  test(`a server that is ${how} during a chain of hand-overs is free soon after the last release`, async (t) => {
    const servers = await Promise.all([0, 1, 2].map(() => startRedis(t, { keep: true })))
    const store = servers.map((server) => server.url())
    const clients = [0, 1, 2].map((i) => createLockClient({ store, ttl: 20_000, name: `client ${i}` }))
    atEnd(t, () => Promise.all(clients.map((client) => client.close())))
    await Promise.all(clients.map((client) => client.ready()))
    const tokens = () => Promise.all(servers.map((server) => server.ask('GET', 'lock:k')))
    let ticket = await (await clients[0].acquire('k')).detach(60_000)
    await until('the ticket to be everywhere', async () => new Set(await tokens()).size === 1)
    if (how === 'down') await servers[2].kill()
    else servers[2].freeze()
    for (const i of adopters.slice(0, -1)) ticket = await (await clients[i].adopt(ticket)).detach(60_000)
    assert.equal(await (await clients[adopters.at(-1)].adopt(ticket)).release(), true)
    // Wait until the requests to the server have timed out.
    await sleep(1_500)
    if (how === 'down') await servers[2].start()
    else servers[2].thaw()
    await until('all servers to be free', async () => (await tokens()).every((token) => !token), 15_000)
  })
}

for (const [how, end] of [
  ['aborts', (_, controller) => controller.abort()],
  ['closes its client', (locks) => locks.close()],
]) {
  test(`an adopter that ${how} before it has seen the lease gives the lease back to the ticket`, async (t) => {
    const servers = await Promise.all([0, 1, 2].map(() => startRedis(t)))
    const store = servers.map((server) => server.url())
    const open = () => {
      const locks = createLockClient({ store, ttl: 20_000 })
      atEnd(t, () => locks.close())
      return locks
    }
    const other = open()
    let givenBack = 0
    for (let round = 0; round < 10; round++) {
      const locks = open()
      await locks.ready()
      const key = `${how} ${round}`
      const lease = await other.acquire(key)
      const ticket = await lease.detach()
      const controller = new AbortController()
      const adoption = locks.adopt(ticket, { signal: controller.signal }).catch((error) => error)
      // Let the request leave this thread. Then block the thread: it sees the answer late.
      await setImmediate()
      const blockedUntil = performance.now() + 60
      while (performance.now() < blockedUntil);
      await end(locks, controller)
      const outcome = await adoption
      if (!(outcome instanceof LockError)) {
        await outcome.release()
        continue
      }
      givenBack++
      assert.equal(await other.tryAcquire(key), null, 'no other client gets the lock')
      const adopted = await within('the ticket to be adopted', adoptAgain(other, ticket), 5_000)
      assert.equal(adopted.fence, lease.fence)
      await adopted.release()
    }
    assert.ok(givenBack > 0, 'all adoptions had settled before')
  })
}

/** Adopts the ticket as soon as the adopter that gave up has given the lease back. */
async function adoptAgain(locks, ticket) {
  for (;;) {
    const lease = await locks.adopt(ticket).catch((error) => {
      if (error.reason !== 'taken') throw error
    })
    if (lease) return lease
  }
}
