// LockTimeoutError at a server that is silent or gone. Such a server delays a call by at most 250
// ms, and delays neither a client that closes nor a process that ends.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { getEventListeners } from 'node:events'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { createLockClient, LockAbortedError, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'
import { sharedStoreNames } from '../support/stores.mjs'

const { HolderQuery } = createRequire(import.meta.url)('../../dist/lock/holder-query.js')

/** How much a busy machine may add to a timer, in ms. */
const SLACK = 500

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

describe('process: time-outs at a silent server', {
  skip: !sharedStoreNames.includes('redis'),
  timeout: 240_000,
}, () => {
  /** Starts a server that holds `k`, makes `locks` wait for it, and freezes the server. */
  async function silent(t, call, clientOptions = {}) {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url(), { storeTimeout: 5_000, ...clientOptions })
    const holder = clientOf(t, server.url())
    await holder.acquire('k', { ttl: 60_000 })
    const calls = call(locks)
    await until('the calls to wait', async () => (await holder.inspect('k')).waiters.length > 0)
    // Until the next poll, a second later, the waiters do not expect to hear from the server.
    server.freeze()
    atEnd(t, () => server.thaw())
    return { server, locks, calls }
  }

  test('a silent server delays the errors of all calls by 250 ms once, and the client sends no further request', async (t) => {
    const { server, locks, calls } = await silent(t, (locks) =>
      [300, 300, 320, 350, 700].map((wait) => timed(() => locks.acquire('k', { wait }))),
    )
    const outcomes = await within('all calls to end', Promise.all(calls), 5_000)
    for (const { error } of outcomes) {
      assert.ok(error instanceof LockTimeoutError, error?.stack)
      assert.match(error.message, /ms: already held; inspect\(\) shows the holder$/)
      assert.equal(error.holder, undefined)
    }
    for (const [i, { ms }] of outcomes.slice(0, 4).entries()) assert.ok(ms >= 545, `${i}: ${ms} ms`)
    assert.ok(outcomes.at(-1).ms < 700 + 200, `${outcomes.at(-1).ms} ms: the server is known to be silent`)
    assert.ok(Math.max(...outcomes.map(({ ms }) => ms)) < 700 + SLACK, JSON.stringify(outcomes))
    assert.equal(locks.stats().timeouts, 5)
    server.thaw()
    await until('the server to be asked again', async () => {
      const error = await locks.acquire('k', { wait: 20 }).catch((error) => error)
      return error.holder !== undefined
    })
  })

  test('an abort ends the calls that wait for a silent server at once, and no other call', async (t) => {
    const controllers = Array.from({ length: 3 }, () => new AbortController())
    const { server, locks, calls } = await silent(t, (locks) =>
      ['k', 'k', ['k', 'l']].map((keys, i) => locks.acquire(keys, { wait: 300, signal: controllers[i].signal })),
    )
    const settled = Promise.allSettled(calls)
    await sleep(400)
    // These calls may get the slots of the calls whose wait has ended.
    const others = Array.from({ length: 10 }, (_, i) => locks.acquire(`other-${i}`, { wait: 60_000 }))
    await new Promise(setImmediate)
    const reason = new Error('not wanted any more')
    const { ms, value } = await timed(() => {
      for (const controller of controllers) controller.abort(reason)
      return within('the rejections', settled, 5_000)
    })
    assert.ok(ms < 140, `${ms} ms`)
    for (const { reason: error } of value) {
      assert.ok(error instanceof LockAbortedError, error?.stack)
      assert.equal(error.cause, reason)
    }
    for (const { signal } of controllers) assert.equal(getEventListeners(signal, 'abort').length, 0)
    server.thaw()
    for (const lease of await within('the others', Promise.all(others))) assert.equal(lease.isHeld, true)
  })

  test('an abort ends at once a call that no longer retries and waits for the answer of a slow server', async (t) => {
    const server = await startRedis(t)
    await clientOf(t, server.url()).acquire('k', { ttl: 60_000 })
    const relay = await startRelay(t, server.port)
    const locks = clientOf(t, `redis://127.0.0.1:${relay.port}`)
    await locks.ready()
    relay.slow(200)
    const controller = new AbortController()
    const call = locks.acquire('k', { retry: { retries: 1, minDelay: 1 }, signal: controller.signal })
    const failure = timed(() => call)
    await until('both tries to be answered', () => locks.stats().contended === 2)
    await sleep(20)
    const reason = new Error('not wanted any more')
    const at = now()
    controller.abort(reason)
    const { error } = await failure
    assert.ok(now() - at < 140, `${now() - at} ms`)
    assert.ok(error instanceof LockAbortedError, error?.stack)
    assert.equal(error.cause, reason)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  })

  test('close() ends the calls that wait for a silent server at once, also if a section still runs', async (t) => {
    let end
    const section = new Promise((resolve) => {
      end = resolve
    })
    const { server, locks, calls } = await silent(t, (locks) => {
      const running = locks.withLock('section', { ttl: 60_000 }, () => section)
      const waiting = ['k', ['k', 'l']].map((keys) => locks.acquire(keys, { wait: 300 }))
      return [Promise.allSettled(waiting), running]
    })
    await sleep(400)
    const { ms, value } = await timed(() => {
      locks.close()
      return within('the rejections', calls[0], 5_000)
    })
    assert.ok(ms < 140, `${ms} ms`)
    for (const { reason } of value) assert.ok(reason instanceof LockTimeoutError, reason?.stack)
    server.thaw()
    end()
    await within('the end of the section', calls[1])
  })

  test('a request that a silent server does not answer does not keep the process alive', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    await locks.acquire('k', { ttl: 60_000 })
    const options = { store: server.url(), key: 'k', wait: 300, storeTimeout: 10_000 }
    const child = startChild(t, 'late-error.mjs', options)
    await until('the waiters to wait', async () => (await locks.inspect('k')).waiters.length > 0)
    server.freeze()
    atEnd(t, () => server.thaw())
    const { at, error } = await child.next('rejected')
    // On a busy machine, the client may have noticed within its wait that the server is silent.
    assert.match(error.name, /^(LockTimeout|StoreUnavailable)Error$/)
    assert.deepEqual(await within('the end', child.ended, 9_000), { code: 0, signal: null }, child.stderr)
    // Before it ends, a process gives up its place in the queue.
    assert.ok(now() - at < 2_000, `${now() - at} ms after the error`)
  })

  test('at a silent server, all waits end, also for more locks than a client inspects at a time', async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    const keys = Array.from({ length: 80 }, (_, i) => `k${i}`)
    await Promise.all(keys.map((key) => locks.acquire(key, { ttl: 60_000 })))
    // The waits of the second half end after the requests of the first half were sent, and before
    // these requests are given up.
    const waits = keys.map((key, i) => ({ key, wait: i < 40 ? 900 : 1_000 }))
    const child = startChild(t, 'late-errors.mjs', { store: server.url(), storeTimeout: 10_000, waits })
    await until('the waiters to wait', async () =>
      (await locks.list()).locks.every(({ waiters }) => waiters.length > 0),
    )
    server.freeze()
    atEnd(t, () => server.thaw())
    assert.deepEqual(await within('the end', child.ended, 9_000), { code: 0, signal: null }, child.stderr)
    assert.equal((await child.next('settled')).count, 80)
  })

  test('close() in a listener does not touch the slot of a request whose reply has come', async (t) => {
    const names = [randomUUID(), randomUUID()]
    const [holder, closing, innocent] = [names[0], names[0], names[1]].map((name) => clientOf(t, `memory:${name}`))
    await Promise.all([holder.acquire('k'), innocent.ready()])
    const taken = []
    closing.on('lost', () => {
      closing.close()
      // The first call may get the slot of the request.
      for (const key of ['a', 'b', 'c']) taken.push(innocent.acquire(key))
    })
    await closing.acquire('short', { ttl: 1_000, maxHold: 1_000 })
    // Block the thread from the request to the loss, so that the reply and the loss come in one
    // batch.
    const { send } = HolderQuery.prototype
    t.after(() => {
      HolderQuery.prototype.send = send
    })
    HolderQuery.prototype.send = function () {
      send.call(this)
      const end = now() + 400
      queueMicrotask(() => {
        while (now() < end);
      })
    }
    const error = await closing.acquire('k', { wait: 800 }).catch((error) => error)
    assert.ok(error instanceof LockTimeoutError, error?.stack)
    await until('the loss', () => taken.length === 3)
    const leases = await within('the leases', Promise.all(taken))
    assert.ok(leases.every(({ isHeld }) => isHeld))
    assert.equal(innocent.stats().held, 3)
  })

  test('the client sends no request while the circuit breaker is open', async (t) => {
    const { server, locks, calls } = await silent(t, (locks) => [locks.acquire('k', { wait: 1_800 })])
    const failure = calls[0].catch((error) => error)
    // The clients of a server share its breaker. The breaker opens before the waiter misses a
    // reply.
    const impatient = clientOf(t, server.url(), { storeTimeout: 300 })
    while (impatient.stats().stores[0].state === 'closed') {
      await assert.rejects(impatient.tryAcquire('j'), StoreUnavailableError)
    }
    const error = await failure
    assert.ok(error instanceof LockTimeoutError, error?.stack)
    assert.match(error.message, /already held/)
    assert.notEqual(locks.stats().stores[0].state, 'closed')
    assert.equal(locks.stats().errors, 0, 'a request was refused')
  })
})
