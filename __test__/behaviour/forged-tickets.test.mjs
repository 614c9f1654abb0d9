// Edited tickets, on every store: only the store decides on the fence, the mode and the ttl.

import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { test } from 'node:test'
import { createLockClient } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'

/** The largest fence that a ticket may have. It stands for a time in the year 2201. */
const FAR = 7_258_118_400_000_000
const READERS = 4_294_967_295

/** Returns the fields of a ticket. */
const fieldsOf = (ticket) => JSON.parse(Buffer.from(ticket, 'base64url').toString())

/** Returns the ticket with some of its fields replaced. */
function forge(ticket, fields) {
  return Buffer.from(JSON.stringify({ ...fieldsOf(ticket), ...fields })).toString('base64url')
}

/** Returns the modes in the messages about the lease of `key`, and about its call, during `act`. */
async function modesOf(key, act) {
  const modes = []
  const hear = (message) => {
    if (message.key === key) modes.push(message.mode)
  }
  const channels = ['leasehold:granted', 'tracing:leasehold:acquire:asyncEnd']
  for (const channel of channels) subscribe(channel, hear)
  try {
    await act()
  } finally {
    for (const channel of channels) unsubscribe(channel, hear)
  }
  return modes
}

/** Checks that forged tickets change nothing. `open(t)` returns a fresh client. */
async function check(t, open, key) {
  const [a, b, c] = [open(t), open(t), open(t)]
  await t.test('the adopter has the fence of the lease, and not that of the ticket', async () => {
    for (const fence of [FAR, 1]) {
      const lease = await a.acquire(key(), { ttl: 20_000 })
      const adopted = await b.adopt(forge(await lease.detach(), { fence }))
      assert.equal(adopted.fence, lease.fence)
      assert.equal((await c.inspect(lease.key)).fence, lease.fence)
      await adopted.renew()
      await adopted.release()
      const next = await c.acquire(lease.key)
      assert.ok(next.fence > lease.fence && next.fence < FAR, `${next.fence}`)
      await next.release()
    }
  })
  await t.test('the adopter has the last fence of a lease that was handed on within its process', async () => {
    const name = key()
    let lease = await a.acquire(name, { ttl: 20_000 })
    for (let i = 0; i < 5; i++) {
      const next = a.acquire(name, { ttl: 20_000 })
      await lease.release()
      lease = await next
    }
    const adopted = await b.adopt(forge(await lease.detach(), { fence: 1 }))
    assert.equal(adopted.fence, lease.fence)
    const again = await c.adopt(forge(await adopted.detach(), { fence: FAR }))
    assert.equal(again.fence, lease.fence)
    await again.release()
  })
  await t.test('the ttl is at most that of the detached lease, unless the adopter asks for another', async () => {
    const detach = async () => (await a.acquire(key(), { ttl: 3_000 })).detach(5_000)
    const adopted = await b.adopt(forge(await detach(), { ttl: 2_147_483_647 }))
    assert.equal(adopted.ttl, 3_000)
    assert.ok(adopted.remaining <= 5_000, `${adopted.remaining}`)
    const { remaining } = await c.inspect(adopted.key)
    assert.ok(remaining <= 5_000, `${remaining}`)
    assert.equal((await b.adopt(forge(await detach(), { ttl: 1_000 }))).ttl, 1_000)
    assert.equal((await b.adopt(await detach(), { ttl: 60_000 })).ttl, 60_000)
  })
  await t.test('the adopter has the mode of the lease, and not that of the ticket', async () => {
    const exclusive = await a.acquire(key(), { ttl: 20_000 })
    const adopted = await b.adopt(forge(await exclusive.detach(), { most: READERS }))
    await adopted.renew()
    assert.equal((await c.inspect(exclusive.key)).shared, false)
    assert.equal(await c.readWriteLock(exclusive.key).read.tryAcquire(), null)
    const name = key()
    const reader = await a.readWriteLock(name).read.acquire({ ttl: 20_000 })
    const shared = await b.adopt(forge(await reader.detach(), { most: 0 }))
    await shared.renew()
    assert.equal(shared.fence, reader.fence)
    assert.equal((await c.inspect(name)).shared, true)
    const other = await c.readWriteLock(name).read.tryAcquire()
    assert.ok(other, 'another reader gets the lock')
  })
  await t.test('messages and the next ticket have the mode of the lease, and not that of the ticket', async () => {
    const exclusive = (name) => a.acquire(name, { ttl: 20_000 })
    const reader = (name) => a.readWriteLock(name).read.acquire({ ttl: 20_000 })
    for (const [acquire, said, most, mode] of [
      [exclusive, 7, 0, 'exclusive'],
      [exclusive, READERS, 0, 'exclusive'],
      [reader, 0, READERS, 'read'],
    ]) {
      const lease = await acquire(key())
      const ticket = forge(await lease.detach(), { most: said })
      let adopted
      const modes = await modesOf(lease.key, async () => {
        adopted = await b.adopt(ticket)
      })
      assert.deepEqual(modes, [mode, mode])
      const next = await adopted.detach()
      assert.equal(fieldsOf(next).most, most)
      await (await b.adopt(next)).release()
    }
  })
}

overStores('forged tickets', (store) => {
  test('an edited ticket changes no fence, mode or ttl', (t) => check(t, (t) => store.client(t), store.key))
})

test('an edited ticket changes no fence, mode or ttl: quorum', async (t) => {
  const servers = await Promise.all([0, 1, 2].map(() => startRedis(t)))
  const store = servers.map((server) => server.url())
  const open = () => {
    const locks = createLockClient({ store })
    atEnd(t, () => locks.close())
    return locks
  }
  let count = 0
  await check(t, open, () => `key ${count++}`)
})
