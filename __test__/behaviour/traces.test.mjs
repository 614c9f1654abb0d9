// The trace that the store keeps with a lease, and how a process uses it. See also
// process/traces.test.mjs.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { context } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { AlwaysOffSampler } from '@opentelemetry/sdk-trace-base'
import { createLockClient } from 'leasehold'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'
import { instrumented, traceparent, tracing } from '../support/tracing.mjs'

before(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()))
after(() => context.disable())

const traceOf = (span) => traceparent(span.spanContext())
const acquires = (begun) => begun.filter(({ name }) => name === 'leasehold acquire')

overStores('traces', (store) => {
  test('for every method, the store has the name of the client and the span of the call', async (t) => {
    const { tracerProvider, named } = tracing()
    const locks = instrumented(t, store.client(t, { name: 'me: the 1st' }), { tracerProvider })
    const methods = {
      acquire: (key) => locks.acquire(key),
      tryAcquire: (key) => locks.tryAcquire(key),
      'with retries': (key) => locks.acquire(key, { retry: { retries: 3 } }),
      semaphore: (key) => locks.semaphore(key, 3).acquire(),
      'to read': (key) => locks.readWriteLock(key).read.acquire(),
      adopt: async (key) => locks.adopt(await (await locks.acquire(key)).detach()),
    }
    for (const [method, call] of Object.entries(methods)) {
      const key = store.key()
      const lease = await call(key)
      const info = await locks.inspect(key)
      assert.equal(info.holder, 'me: the 1st', method)
      assert.equal(info.trace, traceOf(named('acquire').at(-1)), method)
      assert.equal(info.fence, lease.fence, method)
      await lease.release()
    }
  })

  test('several keys have one trace, and a call has no link to its own leases', async (t) => {
    const { tracerProvider, begun } = tracing()
    const locks = instrumented(t, store.client(t), { tracerProvider, inspectAfter: 10 })
    const keys = [store.key(), store.key()].sort()
    const held = await store.client(t, { name: 'plain' }).acquire(keys[1])
    const waiting = locks.acquire(keys)
    const [span] = acquires(begun)
    await until('the holder to be known', () => span.events.length > 0)
    assert.equal((await locks.inspect(keys[0])).trace, traceOf(span))
    await held.release()
    const both = await waiting
    for (const key of keys) assert.equal((await locks.inspect(key)).trace, traceOf(span))
    await both.release()
    assert.deepEqual(
      span.events.map(({ attributes }) => [attributes['leasehold.key'], attributes['leasehold.holder.name']]),
      [[keys[1], 'plain']],
    )
    assert.deepEqual(span.links, [])
  })

  test('the store gets no trace of an unsampled span, and none with propagate: false', async (t) => {
    const unsampled = { tracerProvider: tracing({ sampler: new AlwaysOffSampler() }).tracerProvider }
    const unpropagated = { tracerProvider: tracing().tracerProvider, propagate: false }
    for (const options of [unsampled, unpropagated]) {
      const key = store.key()
      const locks = instrumented(t, store.client(t, { name: 'untraced' }), options)
      const lease = await locks.acquire(key)
      const info = await locks.inspect(key)
      assert.equal(info.holder, 'untraced')
      assert.equal('trace' in info || 'trace' in info.leases[0], false)
      await lease.release()
    }
  })

  test('after a local hand-off, a waiter links to the last hold, and not to the lease in the store', async (t) => {
    const { tracerProvider, begun, named } = tracing()
    const locks = instrumented(t, store.client(t), { tracerProvider, inspectAfter: 30 })
    // The client hands a lease on locally only after a hold of a few ms.
    const [key, second, third] = await until('a lease to be handed on within the process', async () => {
      const key = store.key()
      const first = await locks.acquire(key)
      const waiting = [locks.acquire(key), locks.acquire(key)]
      // The client has reserved fences for the hand-off by then.
      await locks.ready()
      const { localHandOffs } = locks.stats()
      await first.release()
      const second = await waiting[0]
      if (locks.stats().localHandOffs > localHandOffs) return [key, second, waiting[1]]
      await second.release()
      await (await waiting[1]).release()
    })
    const [first, , last] = acquires(begun).slice(-3)
    assert.equal((await locks.inspect(key)).trace, traceOf(first), 'the store still has the first lease')
    await until('the holder to be known', () => last.events.length > 0)
    await second.release()
    await (await third).release()
    const [hold] = named('hold').slice(-2)
    assert.deepEqual(
      last.links.map(({ context }) => context.spanId),
      [hold.spanContext().spanId],
    )
  })
})

describe('traces: requests and data', () => {
  test('many waiters for one lock share an inspection', async (t) => {
    const { tracerProvider, begun } = tracing()
    const locks = createLockClient({ store: 'memory:traces' })
    atEnd(t, () => locks.close())
    instrumented(t, locks, { tracerProvider, inspectAfter: 300 })
    let inspections = 0
    const { inspect } = locks
    locks.inspect = (key) => {
      inspections++
      return inspect.call(locks, key)
    }
    const lease = await locks.acquire('key')
    const waiting = Array.from({ length: 30 }, () => locks.acquire('key'))
    await until('the holder to be known', () =>
      acquires(begun)
        .slice(1)
        .every((span) => span.events.length > 0),
    )
    assert.ok(inspections >= 1 && inspections <= 3, `${inspections} times`)
    await lease.release()
    for (const next of waiting) await (await next).release()
  })

  test('without a trace, the data in the store is that of versions without traces', async (t) => {
    const redis = await startRedis(t)
    const { tracerProvider } = tracing()
    const plain = createLockClient({ store: redis.url(), name: 'plain' })
    const traced = instrumented(t, createLockClient({ store: redis.url(), name: 'traced' }), { tracerProvider })
    atEnd(t, () => Promise.all([plain.close(), traced.close()]))
    const one = await plain.acquire('one')
    const two = await traced.acquire('two')
    const written = async (key) => (await redis.ask('GET', `{lock:${key}}:fence`)).split(' ').slice(1).join(' ')
    assert.equal(await written('one'), `${one.token} plain`)
    assert.match(await written('two'), new RegExp(`^${two.token} traced\\u{1f}00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, 'u'))
  })
})
