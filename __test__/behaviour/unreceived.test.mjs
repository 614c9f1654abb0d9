// A lease that is lost before its caller receives it rejects the call, and emits no 'lost'.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { LockAbortedError } from 'leasehold'
import { now } from '../support/clock.mjs'
import { aborted, lost } from '../support/leases.mjs'
import { overStores } from '../support/stores.mjs'

const require = createRequire(import.meta.url)
const { RecordKind } = require('../../dist/native/protocol.js')
const { deliverRecord } = require('../../dist/native/slots.js')

/** Blocks this thread until `check` returns true, so that the thread receives nothing meanwhile. */
function blockUntil(what, check, timeout = 20_000) {
  const end = now() + timeout
  while (!check()) {
    if (now() > end) throw new Error(`${what}: not within ${timeout} ms`)
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
  }
}

/** Collects the leases of the 'lost' events of `locks` from now on. */
function lossesOf(locks) {
  const losses = []
  locks.on('lost', (lease) => losses.push(lease))
  return losses
}

/** Acquires a lock, and blocks this thread until the lease is lost. Returns { acquiring }. */
async function acquireAndBlock(locks, key, options) {
  const acquiring = locks.acquire(key, { ttl: 100, autoRenew: false, ...options })
  // The call reaches the addon in a microtask. Nothing else may run meanwhile: in Deno, timers run
  // before ticks.
  await undefined
  blockUntil('the loss', () => locks.stats().lost === 1)
  return { acquiring }
}

overStores('lease that its caller has not received', (store) => {
  test('if the lease is lost while the thread is blocked, acquire rejects, and no event is emitted', async (t) => {
    const locks = store.client(t)
    const losses = lossesOf(locks)
    const { acquiring } = await acquireAndBlock(locks, store.key())
    await assert.rejects(acquiring, lost('expired'))
    // Events that came with the rejection have been emitted when a later request is answered.
    await locks.ready()
    assert.deepEqual(losses, [])
  })

  test('if the lease is lost while the thread is blocked, an abort still rejects acquire', async (t) => {
    const locks = store.client(t)
    const losses = lossesOf(locks)
    const controller = new AbortController()
    const { acquiring } = await acquireAndBlock(locks, store.key(), { signal: controller.signal })
    controller.abort()
    await assert.rejects(acquiring, LockAbortedError)
    await locks.ready()
    assert.deepEqual(losses, [])
  })

  test('the loss of a received lease is emitted once', async (t) => {
    const locks = store.client(t)
    const losses = lossesOf(locks)
    const lease = await locks.acquire(store.key(), { ttl: 100, autoRenew: false })
    await aborted(lease)
    await locks.ready()
    assert.deepEqual(losses, [lease])
  })

  test('a failed renewal that was not requested changes nothing', async (t) => {
    const locks = store.client(t)
    const lease = await locks.acquire(store.key())
    lease[deliverRecord](RecordKind.RenewFailed, 0, 0)
    assert.equal(lease.isHeld, true)
    await lease.renew()
    lease[deliverRecord](RecordKind.RenewFailed, 0, 0)
    assert.equal(await lease.release(), true)
  })
})
