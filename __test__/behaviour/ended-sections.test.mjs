// Tests the error of a lease that code uses after its section has ended.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { createLockWorker, LockError } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { overStores } from '../support/stores.mjs'

const error = (message) => ({ constructor: LockError, code: 'ERR_LOCK_RELEASED', message })
const ended = (key) =>
  error(`the lease of "${key}" was given up when its section ended: use it only within the section`)
const released = (key) => error(`the lease of "${key}" was released: acquire the lock again`)

async function assertEnded(lease, key, expected = ended(key)) {
  await assert.rejects(lease.renew(), expected)
  assert.throws(() => lease.assertHeld(), expected)
  assert.equal(lease.isHeld, false)
}

overStores('a lease after its section', (store) => {
  const give = (lease) => lease

  test('withLock: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const lease = await locks.withLock(key, give)
    await assertEnded(lease, key)
    await assert.rejects(lease.detach(), ended(key))
  })

  test('withLock whose work fails: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    let lease
    const work = async (held) => {
      lease = held
      throw new Error('mine')
    }
    await assert.rejects(locks.withLock(key, work), { message: 'mine' })
    await assertEnded(lease, key)
  })

  test('withLock of several keys: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const keys = [store.key(), store.key()]
    const lease = await locks.withLock(keys, give)
    await assertEnded(lease, lease.keys[0])
  })

  test('withLock with a callback: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const lease = await new Promise((resolve) => {
      locks.withLock(key, (_error, held, done) => done(() => resolve(held)))
    })
    await assertEnded(lease, key)
  })

  test('withAdopted: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const ticket = await (await locks.acquire(key)).detach()
    await assertEnded(await locks.withAdopted(ticket, give), key)
  })

  for (const [what, onFailure, work] of [
    ['', 'forget', () => {}],
    [' that fails', 'forget', () => Promise.reject(new Error('mine'))],
    [' that fails, with its id kept', 'keep', () => Promise.reject(new Error('mine'))],
  ])
    test(`the work of once()${what}`, async (t) => {
      const locks = store.client(t)
      const key = store.key()
      let lease
      const run = (held) => {
        lease = held
        return work()
      }
      await locks.once(key, 'id', run, { onFailure }).catch((thrown) => assert.equal(thrown.message, 'mine'))
      await assertEnded(lease, lease.key)
    })

  test('the work of a worker: the error says that the section has ended', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const worker = createLockWorker({ client: locks, key, startWork: (_lease, signal) => once(signal, 'abort') })
    atEnd(t, () => worker.stop())
    const [lease] = await Promise.all([once(worker, 'acquired').then(([held]) => held), worker.start()])
    await worker.stop()
    await assertEnded(lease, key)
  })

  test('a section that releases or detaches its lease itself gets other errors', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const own = await locks.withLock(key, async (lease) => {
      await lease.release()
      await assertEnded(lease, key, released(key))
      return lease
    })
    await assertEnded(own, key, released(key))
    const detached = await locks.withLock(key, async (lease) => {
      await lease.detach()
      return lease
    })
    await assertEnded(
      detached,
      key,
      error(`the lease of "${key}" was detached: adopt its ticket, or acquire the lock again`),
    )
  })
})
