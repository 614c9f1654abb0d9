// detach() and adopt() hand a lease to another client by a ticket, on every store. One client
// adopts it, the lock is never free in between, and printing shows no secret.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { inspect } from 'node:util'
import { LockAbortedError, LockClosedError, LockError, LockLostError } from 'leasehold'
import { until } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

const RELEASED = { constructor: LockError, code: 'ERR_LOCK_RELEASED' }

overStores('detach and adopt', (store) => {
  test('another client adopts the lease of the same lock with the same fence', async (t) => {
    const [a, b, c] = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key, { ttl: 5_000 })
    const ticket = await lease.detach()
    assert.match(ticket, /^[\w-]+$/)
    assert.equal(await c.tryAcquire(key), null, 'the lock is taken in between')
    const adopted = await b.adopt(ticket)
    assert.equal(adopted.key, key)
    assert.equal(adopted.fence, lease.fence)
    assert.equal(adopted.ttl, 5_000)
    assert.equal(adopted.isHeld, true)
    assert.ok(adopted.remaining > 1_000, `${adopted.remaining}`)
    adopted.assertHeld()
    await adopted.renew()
    assert.equal(await c.tryAcquire(key), null)
    assert.equal(await adopted.release(), true)
    const next = await c.tryAcquire(key)
    assert.ok(next.fence > adopted.fence)
  })

  test('a detached lease is not held, and not lost', async (t) => {
    const locks = store.client(t)
    locks.on('lost', () => assert.fail('the lease was lost'))
    const lease = await locks.acquire(store.key())
    const { signal } = lease
    const ticket = await lease.detach()
    assert.equal(lease.isHeld, false)
    assert.equal(lease.remaining, 0)
    assert.equal(signal.aborted, false)
    assert.throws(() => lease.assertHeld(), { ...RELEASED, message: /detached/ })
    await assert.rejects(lease.renew(), RELEASED)
    await assert.rejects(lease.detach(), RELEASED)
    assert.equal(await lease.release(), false)
    await lease[Symbol.asyncDispose]()
    assert.equal(locks.stats().held, 0)
    const adopted = await locks.adopt(ticket)
    assert.equal(adopted.isHeld, true, 'the release above had no effect')
    await adopted.release()
  })

  test('close() during detach(): the call rejects or gives a ticket, and without a ticket the lock is free', async (t) => {
    const others = store.client(t)
    for (let turns = 0; turns < 4; turns++) {
      const locks = store.client(t)
      const key = store.key()
      const lease = await locks.acquire(key, { ttl: 5_000 })
      const detached = lease.detach(120_000).catch((error) => error)
      for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate)
      await locks.close()
      const outcome = await detached
      if (typeof outcome === 'string') {
        assert.equal(await (await others.adopt(outcome)).release(), true)
      } else {
        assert.equal(outcome.reason, 'closed', String(outcome))
        const next = await others.acquire(key, { wait: 5_000 })
        assert.equal(await next.release(), true)
      }
    }
  })

  test('if several clients adopt a ticket, one gets the lease, and the others get LockLostError', async (t) => {
    const clients = Array.from({ length: 4 }, () => store.client(t))
    const key = store.key()
    const lease = await clients[0].acquire(key, { ttl: 30_000 })
    const ticket = await lease.detach()
    const outcomes = await Promise.allSettled(clients.map((locks) => locks.adopt(ticket)))
    const winners = outcomes.filter(({ status }) => status === 'fulfilled')
    assert.equal(winners.length, 1)
    for (const { reason } of outcomes.filter(({ status }) => status === 'rejected')) {
      assert.ok(reason instanceof LockLostError, String(reason))
      assert.equal(reason.key, key)
    }
    assert.equal(winners[0].value.isHeld, true)
    await winners[0].value.renew()
    await winners[0].value.release()
    await assert.rejects(clients[1].adopt(ticket), LockLostError)
  })

  test('a ticket that is not adopted ends with its ttl', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    // With a shorter time, a busy machine may not write the ticket to the disk in time.
    const lease = await a.acquire(key, { ttl: 1_000 })
    const ticket = await lease.detach(1_500)
    const next = await b.acquire(key, { wait: 20_000 })
    assert.ok(next.fence > lease.fence)
    await assert.rejects(a.adopt(ticket), (error) => error instanceof LockLostError)
    assert.equal(next.isHeld, true)
  })

  test('detach(ttl) sets the ttl of the ticket, and adopt() uses the ttl of the lease or its own', async (t) => {
    const [a, b] = [store.client(t), store.client(t, { ttl: 7_777 })]
    const lease = await a.acquire(store.key(), { ttl: 1_000 })
    const ticket = await lease.detach(60_000)
    const info = await b.inspect(lease.key)
    assert.ok(info.remaining > 30_000, `${info.remaining}`)
    const adopted = await b.adopt(ticket)
    assert.equal(adopted.ttl, 1_000)
    const again = await a.adopt(await adopted.detach(), { ttl: 3_333 })
    assert.equal(again.ttl, 3_333)
    assert.equal(again.fence, lease.fence, 'the lease is the same after two adoptions')
    await again.release()
  })

  test('an adopted lease is renewed unless autoRenew is false or maxHold is over', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const renewed = await b.adopt(await (await a.acquire(store.key(), { ttl: 1_500, autoRenew: false })).detach())
    await until('a renewal', () => b.stats().renewals > 0)
    assert.equal(renewed.isHeld, true)
    await renewed.release()
    const short = await b.adopt(await (await a.acquire(store.key(), { ttl: 1_500 })).detach(), { autoRenew: false })
    await aborted(short)
    lost('expired')(short.signal.reason)
    const limited = await b.adopt(await (await a.acquire(store.key(), { ttl: 1_500 })).detach(), { maxHold: 1_600 })
    await aborted(limited)
    lost('expired')(limited.signal.reason)
  })

  test('a shared lease stays shared', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const key = store.key()
    const other = await a.semaphore(key, 2).acquire()
    const lease = await a.semaphore(key, 2).acquire()
    const adopted = await b.adopt(await lease.detach())
    assert.equal(adopted.fence, lease.fence)
    assert.equal(await b.semaphore(key, 2).tryAcquire(), null)
    const info = await a.inspect(key)
    assert.deepEqual([info.shared, info.leases.length], [true, 2])
    await adopted.release()
    assert.equal(other.isHeld, true)
    assert.ok(await b.semaphore(key, 2).tryAcquire())
  })

  test('waiters get the lock from the client that adopted the lease', async (t) => {
    const [a, b, c] = [store.client(t), store.client(t), store.client(t)]
    const key = store.key()
    const lease = await a.acquire(key)
    const waiters = [a, c].map((locks) => locks.acquire(key, { wait: 20_000 }))
    await until('them to wait', () => a.stats().waiting + c.stats().waiting === 2)
    const adopted = await b.adopt(await lease.detach())
    await adopted.release()
    let fence = lease.fence
    for (const waiter of waiters) {
      const next = await waiter
      assert.ok(next.fence > fence)
      fence = next.fence
      await next.release()
    }
  })

  test('a section that detaches its lease ends without a loss', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const ticket = await a.withLock(store.key(), (lease) => lease.detach())
    const adopted = await b.adopt(ticket)
    assert.equal(await adopted.release(), true)
  })

  test('if release() and detach() run at the same time, one succeeds', async (t) => {
    const locks = store.client(t)
    for (let i = 0; i < 20; i++) {
      const lease = await locks.acquire(store.key(), { ttl: 60_000 })
      const detaching = lease.detach().catch((error) => error)
      if (i % 2) await new Promise(setImmediate)
      const released = await lease.release()
      const ticket = await detaching
      if (released) {
        assert.equal(ticket.code, 'ERR_LOCK_RELEASED')
        assert.ok(await locks.acquire(lease.key, { wait: 5_000 }))
      } else {
        assert.equal(await (await locks.adopt(ticket)).release(), true)
      }
    }
  })

  test('renew() and detach() of one lease run one after the other', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key())
    const [renewed, ticket, late] = await Promise.allSettled([lease.renew(20_000), lease.detach(), lease.renew()])
    assert.equal(renewed.status, 'fulfilled')
    assert.equal(late.status, 'rejected')
    assert.equal(late.reason.code, 'ERR_LOCK_RELEASED')
    const adopted = await locks.adopt(ticket.value)
    assert.equal(adopted.ttl, 20_000)
  })

  test('detach() of a lost lease rejects', async (t) => {
    const lease = await store.client(t).acquire(store.key(), { ttl: 100, autoRenew: false })
    await aborted(lease)
    await assert.rejects(lease.detach(), lost('expired'))
  })

  test('an aborted adoption leaves no lock behind', async (t) => {
    const locks = store.client(t)
    const ticket = await (await locks.acquire(store.key(), { ttl: 60_000 })).detach()
    await assert.rejects(locks.adopt(ticket, { signal: AbortSignal.abort() }), LockAbortedError)
    const controller = new AbortController()
    const adopting = locks.adopt(ticket, { signal: controller.signal })
    controller.abort()
    await assert.rejects(adopting, LockAbortedError)
    const rest = await locks.adopt(ticket).catch((error) => error)
    // The lease was not adopted, or the client releases it.
    if (rest instanceof Error) assert.ok(rest instanceof LockLostError, String(rest))
    else await rest.release()
  })

  test('a client with another prefix cannot adopt the ticket', async (t) => {
    const ticket = await (await store.client(t).acquire(store.key())).detach()
    await assert.rejects(store.client(t, { prefix: 'other:' }).adopt(ticket), lost('missing'))
  })

  test('a closed client cannot adopt a ticket, and a ticket survives the client that made it', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const ticket = await (await a.acquire(store.key())).detach()
    await a.close()
    await assert.rejects(a.adopt(ticket), LockClosedError)
    assert.equal((await b.adopt(ticket)).isHeld, true)
  })

  test('printing or serializing a lease or a client shows no token', async (t) => {
    const locks = store.client(t)
    const leases = [await locks.acquire(store.key())]
    leases.push(await locks.adopt(await (await locks.acquire(store.key())).detach()))
    const tokens = leases.map(({ token }) => token)
    const printed = inspect({ leases, locks }, { depth: 10, showHidden: true }) + JSON.stringify(leases)
    for (const token of tokens) {
      assert.match(token, /^[0-9a-f-]{36}$/)
      assert.ok(!printed.includes(token))
    }
    assert.notEqual(tokens[0], tokens[1])
  })
})
