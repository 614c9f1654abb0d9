// A lease that is over before its caller has it is no loss of anybody's.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { LockAbortedError } from 'leasehold'
import { now } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

const { Kind, tell } = createRequire(import.meta.url)('../../dist/native.js')

/** Blocks this thread, so that nothing is handed over, until `check` says yes. */
function blockUntil(what, check, timeout = 20_000) {
  const end = now() + timeout
  while (!check()) {
    if (now() > end) throw new Error(`${what}: not within ${timeout} ms`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  }
}

/** The 'lost' events of `locks`, from now on. */
function losses(locks) {
  const heard = []
  locks.on('lost', (lease) => heard.push(lease))
  return heard
}

/** Asks for a lock, and returns when the lease is over while this thread was blocked. */
async function askAndBlock(locks, key, options) {
  const asked = locks.acquire(key, { ttl: 100, autoRenew: false, ...options })
  // What is asked crosses to native code in a microtask, and no more than that may run: in Deno timers come before ticks.
  await undefined
  blockUntil('the loss', () => locks.stats().lost === 1)
  return { asked }
}

overStores('lease that nobody received', (store) => {
  test('lost while this thread was blocked: the acquire rejects, and that is all', async (t) => {
    const locks = store.client(t)
    const heard = losses(locks)
    const { asked } = await askAndBlock(locks, store.key())
    await assert.rejects(asked, lost('expired'))
    // What came in with the rejection has been told when a later question is answered.
    await locks.ready()
    assert.deepEqual(heard, [])
  })

  test('lost while this thread was blocked, and then aborted', async (t) => {
    const locks = store.client(t)
    const heard = losses(locks)
    const controller = new AbortController()
    const { asked } = await askAndBlock(locks, store.key(), { signal: controller.signal })
    controller.abort()
    await assert.rejects(asked, LockAbortedError)
    await locks.ready()
    assert.deepEqual(heard, [])
  })

  test('a lease that was received is told of, once', async (t) => {
    const locks = store.client(t)
    const heard = losses(locks)
    const lease = await locks.acquire(store.key(), { ttl: 100, autoRenew: false })
    await aborted(lease)
    await locks.ready()
    assert.deepEqual(heard, [lease])
  })

  test('a failed renewal that nobody has asked for changes nothing', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key())
    lease[tell](Kind.RenewFailed, 0, 0)
    assert.equal(lease.isHeld, true)
    await lease.renew()
    lease[tell](Kind.RenewFailed, 0, 0)
    assert.equal(await lease.release(), true)
  })
})
