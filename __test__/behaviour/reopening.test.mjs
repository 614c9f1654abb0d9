// A copy of the package lets go of the engine after its last client was closed. The next client
// works, whenever it is opened.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient, LockLostError } from 'leasehold'
import { within } from '../support/clock.mjs'

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('the next client after the last one was closed', { timeout: 60_000 }, () => {
  test('gets locks, whenever it is opened', async () => {
    const store = `memory:${randomUUID()}`
    for (let turns = 0; turns < 8; turns++) {
      for (const waits of [false, true]) {
        const last = createLockClient(store)
        await last.acquire('k')
        const closed = last.close()
        if (waits) await closed
        for (let i = 0; i < turns; i++) await turn()
        const locks = createLockClient(store)
        const lease = await within('the lock', locks.acquire('k', { wait: 5_000 }), 10_000)
        const waiter = locks.acquire('k', { wait: 5_000 })
        await lease.renew()
        assert.equal(await lease.release(), true)
        assert.equal(await (await within('the next lock', waiter, 10_000)).release(), true)
        await Promise.all([closed, locks.close()])
      }
    }
  })

  test('does not disturb the leases of the clients before it', async (t) => {
    const store = `memory:${randomUUID()}`
    const first = createLockClient(store)
    const [released, detached, held, waiting] = [
      await first.acquire('released'),
      await first.acquire('detached'),
      await first.acquire('held'),
      first.acquire('held', { wait: 60_000 }),
    ]
    const rejected = assert.rejects(waiting, { code: 'ERR_LOCK_CLOSED' })
    assert.equal(await released.release(), true)
    const ticket = await detached.detach()
    await Promise.all([first.close(), rejected])
    const stats = first.stats()

    /** Checks what `leases` and the first client answer after the close. */
    async function check(leases) {
      for (const lease of leases) {
        assert.deepEqual([lease.isHeld, lease.remaining], [false, 0])
        assert.throws(() => lease.assertHeld(), { name: /^Lock/ })
        assert.equal(lease.signal.aborted, lease === held)
        await assert.rejects(lease.renew(), { name: /^Lock/ })
        await assert.rejects(lease.detach(), { name: /^Lock/ })
      }
      assert.ok(held.signal.reason instanceof LockLostError)
      assert.equal(held.signal.reason.reason, 'closed')
      assert.equal(await released.release(), true)
      assert.deepEqual([await detached.release(), await held.release()], [false, false])
      assert.deepEqual(first.stats(), stats)
      await assert.rejects(first.acquire('k'), { code: 'ERR_LOCK_CLOSED' })
      await assert.rejects(first.ready(), { code: 'ERR_LOCK_CLOSED' })
      await assert.rejects(
        first.withLock('k', () => {}),
        { code: 'ERR_LOCK_CLOSED' },
      )
      await first.close()
    }

    for (let i = 0; i < 5; i++) await turn()
    await check([released, detached])
    const next = createLockClient(store)
    t.after(() => next.close())
    // These leases get the numbers that the leases of the first client had.
    const leases = await Promise.all(['a', 'b', 'c', 'd', 'held'].map((key) => next.acquire(key)))
    await check([released, detached, held])
    const adopted = await next.adopt(ticket)
    for (const lease of [...leases, adopted]) assert.equal(await lease.release(), true)
  })
})

test('a client listens to the end of the process again if other code has removed all listeners', async () => {
  const locks = createLockClient('memory:exits')
  const listeners = process.listeners('exit')
  process.removeAllListeners('exit')
  const others = createLockClient('memory:exits')
  try {
    assert.equal(process.listenerCount('exit'), 1)
    assert.ok(listeners.includes(process.listeners('exit')[0]))
  } finally {
    for (const listener of listeners) if (!process.listeners('exit').includes(listener)) process.on('exit', listener)
    await Promise.all([locks.close(), others.close()])
  }
})
