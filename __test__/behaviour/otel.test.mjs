// `leasehold/otel`, with the SDK of OpenTelemetry and in-memory exporters.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { after, before, describe, test } from 'node:test'
import { context, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { createLockClient } from 'leasehold'
import { instrument } from 'leasehold/otel'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { aborted } from '../support/leases.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'
import { instrumented, tracing } from '../support/tracing.mjs'

const { size } = createRequire(import.meta.url)('../../dist/integrations/otel/holders.js')

/** Returns a meter provider, and `read()`, which resolves with the data points of each metric. */
function metering() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 31 - 1 })
  const meterProvider = new MeterProvider({ readers: [reader] })
  return {
    meterProvider,
    async read() {
      const { resourceMetrics, errors } = await reader.collect()
      assert.deepEqual(errors, [])
      const all = resourceMetrics.scopeMetrics.flatMap(({ metrics }) => metrics)
      return Object.fromEntries(all.map(({ descriptor, dataPoints }) => [descriptor.name, dataPoints]))
    },
  }
}

before(() => context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable()))
after(() => context.disable())

overStores('otel', (store) => {
  test('calls and leases are child spans of the caller, with the attributes of the lock', async (t) => {
    const { tracerProvider, begun, spans, named } = tracing()
    const locks = instrumented(t, store.client(t, { name: 'me' }), { tracerProvider })
    const key = store.key()
    const tracer = tracerProvider.getTracer('test')
    const [fence, traceId, parentId] = await tracer.startActiveSpan('caller', async (span) => {
      const lease = await locks.acquire(key, { ttl: 5_000 })
      await lease.renew()
      assert.equal(trace.getActiveSpan(), span, 'the context of the caller is kept')
      await lease.release()
      span.end()
      return [lease.fence, span.spanContext().traceId, span.spanContext().spanId]
    })
    const own = spans.filter(({ name }) => name !== 'caller')
    assert.deepEqual(
      own.map(({ name }) => name),
      ['leasehold acquire', 'leasehold renew', 'leasehold hold', 'leasehold release'],
    )
    assert.equal(begun.length, spans.length)
    for (const span of own) {
      assert.equal(span.spanContext().traceId, traceId)
      assert.equal(span.parentSpanContext.spanId, parentId)
      assert.equal(span.attributes['leasehold.key'], key)
      assert.equal(span.attributes['leasehold.fence'], fence)
      assert.equal(span.attributes['leasehold.client.name'], 'me')
      assert.equal(span.status.code, SpanStatusCode.UNSET)
      assert.deepEqual(span.links, [])
    }
    const [acquire] = named('acquire')
    assert.equal(acquire.attributes['leasehold.outcome'], 'acquired')
    assert.equal(acquire.attributes['leasehold.ttl'], 5)
    const [hold] = named('hold')
    assert.equal(hold.kind, SpanKind.INTERNAL)
    assert.equal(acquire.kind, store.name === 'redis' ? SpanKind.CLIENT : SpanKind.INTERNAL)
    assert.equal(hold.attributes['leasehold.outcome'], 'released')
  })

  test('the span of a waiter links to the hold that it waited for, also of another client', async (t) => {
    const { tracerProvider, named } = tracing()
    const [one, other] = [1, 2].map(() => instrumented(t, store.client(t), { tracerProvider }))
    const key = store.key()
    const first = await one.acquire(key)
    const waiting = other.acquire(key)
    const third = waiting.then(() => one.acquire(key))
    await until('a waiter', () => other.stats().waiting === 1)
    await first.release()
    await (await waiting).release()
    await (await third).release()
    await one.withLock(key, () => {})
    const [a, b] = named('hold').map((span) => span.spanContext().spanId)
    const links = named('acquire').map((span) => span.links.map((link) => link.context.spanId))
    assert.deepEqual(links, [[], [a], [b], []])
    assert.equal(size(), 0, 'the map of holders is empty')
  })

  test('the span of a time-out links to the current hold, and every span ends', async (t) => {
    const { tracerProvider, begun, spans, named } = tracing()
    const locks = instrumented(t, store.client(t), { tracerProvider, inspectAfter: 10 })
    const key = store.key()
    const lease = await locks.acquire(key)
    await assert.rejects(locks.acquire(key, { wait: 400 }))
    await assert.rejects(locks.acquire(key, { signal: AbortSignal.timeout(20) }))
    await assert.rejects(locks.acquire(key, { signal: AbortSignal.abort() }))
    assert.equal(await locks.tryAcquire(key), null)
    const pending = assert.rejects(locks.acquire(key))
    const short = await locks.acquire(store.key(), { ttl: 200, autoRenew: false })
    await aborted(short)
    await locks.close()
    await pending
    await assert.rejects(locks.acquire(key))
    await assert.rejects(lease.renew())
    assert.equal(begun.length, spans.length, 'a span is open')
    const outcomes = named('acquire').map(({ attributes, status }) => [
      attributes['leasehold.outcome'],
      attributes['error.type'],
      status.code === SpanStatusCode.ERROR,
    ])
    assert.deepEqual(outcomes, [
      ['acquired', undefined, false],
      ['timeout', 'ERR_LOCK_TIMEOUT', true],
      ['aborted', 'ERR_LOCK_ABORTED', false],
      ['aborted', 'ERR_LOCK_ABORTED', false],
      ['busy', undefined, false],
      ['acquired', undefined, false],
      ['closed', 'ERR_LOCK_CLOSED', true],
      ['closed', 'ERR_LOCK_CLOSED', true],
    ])
    const hold = named('hold').find(({ attributes }) => attributes['leasehold.key'] === key)
    const timedOut = named('acquire')[1]
    assert.deepEqual(
      timedOut.links.map((link) => link.context.spanId),
      [hold.spanContext().spanId],
    )
    assert.equal(timedOut.events[0].name, 'leasehold.blocked')
    assert.equal(timedOut.events[0].attributes['leasehold.holder.fence'], hold.attributes['leasehold.fence'])
    const reasons = named('hold').map(({ attributes }) => attributes['leasehold.reason'])
    assert.deepEqual(reasons, ['expired', 'closed'])
    assert.equal(named('renew')[0].status.code, SpanStatusCode.ERROR)
    assert.equal(size(), 0, 'the map of holders is empty')
  })

  test('metrics are in seconds, and have the outcome of each call and lease', async (t) => {
    const { meterProvider, read } = metering()
    const locks = instrumented(t, store.client(t, { name: 'measured' }), { meterProvider })
    const key = store.key()
    const lease = await locks.acquire(key)
    await assert.rejects(locks.acquire(key, { wait: 30 }))
    const short = await locks.acquire(store.key(), { ttl: 200, autoRenew: false })
    await aborted(short)
    const now = await read()
    assert.equal(now['leasehold.held'][0].value, 1)
    assert.equal(now['leasehold.waiting'][0].value, 0)
    assert.equal(now['leasehold.held'][0].attributes['leasehold.client.name'], 'measured')
    await lease.release()
    const then = await read()
    const [acquired, timedOut] = then['leasehold.acquire.duration']
    assert.equal(acquired.value.count, 2)
    assert.equal(timedOut.attributes['error.type'], 'ERR_LOCK_TIMEOUT')
    assert.ok(timedOut.value.sum >= 0.029 && timedOut.value.sum < 10, `${timedOut.value.sum} s`)
    assert.equal(then['leasehold.timeouts'][0].value, 1)
    assert.equal(then['leasehold.lost'][0].value, 1)
    assert.equal(then['leasehold.lost'][0].attributes['leasehold.reason'], 'expired')
    const holds = then['leasehold.hold.duration'].map(({ attributes }) => attributes['leasehold.outcome'])
    assert.deepEqual(holds, ['lost', 'released'])
    assert.equal(then['leasehold.release.duration'][0].value.count, 1)
    const keys = Object.values(then)
      .flat()
      .flatMap(({ attributes }) => Object.values(attributes))
    assert.equal(keys.includes(key), false, 'a metric has a key as an attribute')
  })
})

describe('otel: one Redis', () => {
  test('the attributes name the server without its password, and an outage is an error', async (t) => {
    const redis = await startRedis(t, { password: 's3cret' })
    const { tracerProvider, named } = tracing()
    const { meterProvider, read } = metering()
    const locks = createLockClient({ store: redis.url(), storeTimeout: 100 })
    atEnd(t, () => locks.close())
    instrumented(t, locks, { tracerProvider, meterProvider })
    await locks.withLock('key', () => {})
    const { attributes } = named('acquire')[0]
    assert.equal(attributes['db.system.name'], 'redis')
    assert.equal(attributes['db.namespace'], '0')
    assert.equal(attributes['server.address'], '127.0.0.1')
    assert.equal(attributes['server.port'], redis.port)
    assert.equal((await read())['leasehold.store.available'][0].value, 1)
    await redis.kill()
    await until('the breaker to open', async () => {
      await assert.rejects(locks.tryAcquire('key'))
      return locks.stats().stores[0].state !== 'closed'
    })
    const now = await read()
    assert.equal(now['leasehold.store.available'][0].value, 0)
    assert.ok(now['leasehold.errors'][0].value >= 1)
    const last = named('acquire').at(-1)
    assert.equal(last.attributes['error.type'], 'ERR_STORE_UNAVAILABLE')
    assert.equal(JSON.stringify([named('acquire').map((span) => span.attributes), now]).includes('s3cret'), false)
  })

  test('a second instrument() is an error, and disable() ends the reports', async (t) => {
    const { tracerProvider, spans } = tracing()
    const locks = createLockClient('memory:otel')
    atEnd(t, () => locks.close())
    const instrumentation = instrument(locks, { tracerProvider })
    assert.throws(() => instrument(locks), { code: 'ERR_INVALID_ARG_VALUE', message: /instrumented already/ })
    assert.throws(() => instrument({}), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => instrument(createLockClient('memory:x'), { inspectAfter: 0 }), { code: 'ERR_OUT_OF_RANGE' })
    const held = await locks.acquire('held')
    instrumentation.disable()
    instrumentation.disable()
    await locks.withLock('key', () => {})
    await held.release()
    assert.deepEqual(
      spans.map(({ name }) => name),
      ['leasehold acquire', 'leasehold hold'],
    )
    instrument(locks, { tracerProvider }).disable()
  })
})
