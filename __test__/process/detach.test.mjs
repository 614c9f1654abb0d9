// A detached lease belongs to no process. It outlives the process that held it, no matter how that
// process ends.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient, LockLostError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'

for (const name of sharedStoreNames) {
  describe(`detach: ${name}`, { timeout: 120_000 }, () => {
    for (const [end, code] of [
      ['close', 0],
      ['exit', 0],
      ['kill', null],
    ]) {
      test(`another process can adopt a lease after the process that detached it is gone: ${end}`, async (t) => {
        const store = await openStore(name, t)
        const [locks, others] = [createLockClient({ store }), createLockClient({ store })]
        atEnd(t, () => Promise.all([locks.close(), others.close()]))
        const key = randomUUID()
        const child = startChild(t, 'detacher.mjs', { store, key, ttl: 10_000, time: 30_000, end })
        const { ticket, fence } = await child.next('detached')
        assert.equal((await within('the end of the process', child.ended)).code, code, child.stderr)
        assert.equal(await others.tryAcquire(key), null, 'the lock is held though its process is gone')
        const lease = await locks.adopt(ticket)
        assert.equal(lease.fence, fence)
        assert.equal(lease.ttl, 10_000)
        await assert.rejects(others.adopt(ticket), LockLostError)
        await lease.renew()
        assert.equal(await others.tryAcquire(key), null)
        assert.equal(await lease.release(), true)
        const next = await others.acquire(key, { wait: 5_000 })
        assert.ok(next.fence > fence)
      })
    }

    for (const [end, how] of [
      ['early', 'with an open client'],
      ['closed', 'after it has closed its client'],
    ]) {
      test(`a process that ends before it has the ticket releases the lease: ${how}`, async (t) => {
        const store = await openStore(name, t)
        const locks = createLockClient({ store })
        atEnd(t, () => locks.close())
        const key = randomUUID()
        const child = startChild(t, 'detacher.mjs', { store, key, ttl: 10_000, time: 60_000, end })
        const { fence } = await child.next('detaches')
        assert.equal((await within('the end of the process', child.ended)).code, 0, child.stderr)
        const next = await locks.acquire(key, { wait: 8_000 })
        assert.ok(next.fence > fence)
      })
    }

    test('a ticket can be adopted if its client was closed before the caller had it', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      const key = randomUUID()
      const child = startChild(t, 'detacher.mjs', { store, key, ttl: 10_000, time: 60_000, end: 'late' })
      const { ticket, fence } = await child.next('detached')
      assert.equal((await within('the end of the process', child.ended)).code, 0, child.stderr)
      const lease = await locks.adopt(ticket)
      assert.equal(lease.fence, fence)
      await lease.release()
    })

    for (const [end, thread] of [
      ['first', false],
      ['first', true],
      ['turn', false],
    ]) {
      const where = thread ? 'a worker thread' : 'a process'
      test(`${where} that ends while callers get their tickets releases the leases of all others: ${end}`, async (t) => {
        const store = await openStore(name, t)
        const prefix = randomUUID()
        const count = 600
        const locks = createLockClient({ store, prefix })
        atEnd(t, () => locks.close())
        const child = startChild(t, 'ticket-crowd.mjs', { store, prefix, count, end, thread })
        assert.equal((await within('the end of the process', child.ended)).code, 0, child.stderr)
        const tickets = new Map(child.events.map(({ key, ticket }) => [key, ticket]))
        if (end === 'first') assert.equal(tickets.size, 1)
        else assert.ok(tickets.size < count, `${tickets.size} tickets`)
        const next = async (_, i) => {
          const ticket = tickets.get(`${i}`)
          const lease = await (ticket === undefined ? locks.acquire(`${i}`, { wait: 8_000 }) : locks.adopt(ticket))
          await lease.release()
        }
        await Promise.all(Array.from({ length: count }, next))
      })
    }

    test('an adopter that no longer renews keeps the lock for its own ttl, not for the time of the ticket', async (t) => {
      const store = await openStore(name, t)
      const [locks, others] = [createLockClient({ store }), createLockClient({ store })]
      atEnd(t, () => Promise.all([locks.close(), others.close()]))
      const key = randomUUID()
      const child = startChild(t, 'detacher.mjs', { store, key, ttl: 10_000, time: 60_000, end: 'kill' })
      const { ticket, fence } = await child.next('detached')
      // To the store, this is an adopter that has died.
      const lease = await locks.adopt(ticket, { ttl: 300, autoRenew: false })
      assert.equal(lease.fence, fence)
      const next = await others.acquire(key, { wait: 10_000 })
      assert.ok(next.fence > fence)
      assert.equal(lease.isHeld, false)
    })

    test('a detached lease that no client adopts ends with the time of its ticket', async (t) => {
      const store = await openStore(name, t)
      const locks = createLockClient({ store })
      atEnd(t, () => locks.close())
      const key = randomUUID()
      const child = startChild(t, 'detacher.mjs', { store, key, ttl: 300, time: 600, end: 'kill' })
      const { fence } = await child.next('detached')
      const lease = await locks.acquire(key, { wait: 10_000 })
      assert.ok(lease.fence > fence)
    })
  })
}
