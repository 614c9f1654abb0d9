// detach() or renew() gets no answer in time, and then the lease is lost. No caller has a ticket,
// so the lock must not stay taken for the time that they asked for.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { createLockClient, LockLostError } from 'leasehold'
import { now } from '../support/clock.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

/** How long the tickets and the renewed leases would last, in ms. */
const LONGEST = 600_000

/**
 * Starts `count` servers. Returns a client that reaches them through relays, another that reaches
 * them directly, and two functions: `mute` holds the answers of the servers back, and `heal` ends
 * that.
 */
async function start(t, count, ttl) {
  const servers = await Promise.all(Array.from({ length: count }, () => startRedis(t)))
  const relays = await Promise.all(servers.map((server) => startRelay(t, server.port)))
  const storeOf = (urls) => (count === 1 ? urls[0] : urls)
  const store = storeOf(relays.map(({ port }) => `redis://127.0.0.1:${port}`))
  const locks = createLockClient({ store, ttl, storeTimeout: 300 })
  const others = createLockClient(storeOf(servers.map((server) => server.url())))
  for (const client of [locks, others]) {
    client.on('error', () => {})
    t.after(() => client.close({ drain: 0 }))
  }
  const mute = () => {
    for (const relay of relays) relay.bar(['toClient'])
  }
  const heal = () => Promise.all(relays.map((relay) => relay.heal()))
  return { locks, others, mute, heal }
}

/** Detaches the lease. No answer comes in time, so the lease stays held here. */
async function detach(lease, time = LONGEST) {
  await assert.rejects(lease.detach(time), { name: /StoreUnavailableError|QuorumError/ })
  assert.equal(lease.isHeld, true)
}

/** Renews the lease for long. No answer comes in time, so the lease keeps its ttl here. */
async function renew(lease) {
  await assert.rejects(lease.renew(LONGEST), { name: /StoreUnavailableError|QuorumError/ })
  assert.equal(lease.isHeld, true)
}

/** Resolves when the lease is lost. */
async function lost({ signal }) {
  if (!signal.aborted) await once(signal, 'abort')
  assert.ok(signal.reason instanceof LockLostError)
}

/**
 * A ttl of leases that are renewed, in ms. Renewals without an answer let such a lease live on at
 * the store for a ttl after its loss.
 */
const LONG = 4_000

for (const count of [1, 3]) {
  const of = count === 1 ? 'one server' : `a quorum of ${count}`

  for (const prolong of [detach, renew]) {
    const call = `${prolong.name}()`

    test(`${of}: the lock is free when the lost lease would have ended without ${call}`, async (t) => {
      const { locks, others, mute, heal } = await start(t, count, 1_500)
      const lease = await locks.acquire('k', { autoRenew: false })
      const granted = now()
      mute()
      await prolong(lease)
      await heal()
      await lost(lease)
      const next = await others.acquire('k', { wait: 10_000 })
      const held = now() - granted
      // The store has granted the lease a little before this thread heard of it.
      assert.ok(held > 1_500 - 50, `${held} ms`)
      await next.release()
    })

    test(`${of}: release() frees the lock at once after ${call}`, async (t) => {
      const { locks, others, mute, heal } = await start(t, count, LONG)
      const lease = await locks.acquire('k')
      mute()
      await prolong(lease)
      await lost(lease)
      const began = now()
      await heal()
      assert.equal(await others.tryAcquire('k'), null, 'the work of the holder may still run')
      assert.equal(await lease.release(), false)
      const next = await others.acquire('k', { wait: 10_000 })
      assert.ok(now() - began < LONG / 2, `${now() - began} ms`)
      await next.release()
    })
  }

  test(`${of}: after detach(), a lease that reaches its maxHold does not keep the lock`, async (t) => {
    const { locks, others, mute, heal } = await start(t, count, 1_500)
    const lease = await locks.acquire('k', { maxHold: 2_500 })
    mute()
    await detach(lease)
    await heal()
    await lost(lease)
    const next = await others.acquire('k', { wait: 10_000 })
    await next.release()
  })

  test(`${of}: after detach(), a lost adopted lease does not keep the lock, however long its first ticket would last`, async (t) => {
    const { locks, others, mute, heal } = await start(t, count, 1_500)
    const first = await others.acquire('k', { ttl: 1_500 })
    const lease = await locks.adopt(await first.detach(LONGEST), { autoRenew: false })
    mute()
    await detach(lease, 1_000)
    await heal()
    await lost(lease)
    const next = await others.acquire('k', { wait: 10_000 })
    await next.release()
  })

  test(`${of}: close() frees the lock at once, and that of a section when the section ends`, async (t) => {
    const { locks, others, mute, heal } = await start(t, count, LONG)
    const bare = await locks.acquire('k')
    const renewed = await locks.acquire('renewed')
    let endWork
    const section = await new Promise((resolve) => {
      const run = (lease) => {
        resolve({ lease, ended })
        return new Promise((end) => (endWork = end))
      }
      const ended = locks.withLock('section', run)
    })
    const leases = [bare, section.lease]
    mute()
    await Promise.all([...leases.map((lease) => detach(lease)), renew(renewed)])
    await Promise.all([...leases, renewed].map(lost))
    const began = now()
    await heal()
    const closed = locks.close()
    const next = await others.acquire('k', { wait: 10_000 })
    const other = await others.acquire('renewed', { wait: 10_000 })
    assert.equal(await others.tryAcquire('section'), null)
    endWork()
    await assert.rejects(section.ended, LockLostError)
    await closed
    const after = await others.acquire('section', { wait: 10_000 })
    assert.ok(now() - began < LONG / 2, `${now() - began} ms`)
    await Promise.all([next.release(), other.release(), after.release()])
  })
}
