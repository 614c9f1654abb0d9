// Traces that are linked although the processes share only the store.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { until } from '../support/clock.mjs'
import { overStores, sharedStoreNames } from '../support/stores.mjs'
import { traceparent } from '../support/tracing.mjs'

/** Starts a process with an instrumented client. */
async function startTraced(t, { url }, key, name, permits) {
  const child = startChild(t, 'traced.mjs', { store: url, key, name, permits })
  await child.next('ready')
  return child
}

/** Returns the only span of that name. */
async function spanOf(child, name) {
  const { spans } = await child.ask('spans')
  const found = spans.filter((span) => span.name === `leasehold ${name}`)
  assert.equal(found.length, 1, JSON.stringify(spans))
  return found[0]
}

overStores(
  'traces of two processes',
  (store) => {
    test('the call that waited is linked to the call of the other process that held the lock', async (t) => {
      const key = store.key()
      const [one, two] = await Promise.all(['one', 'two'].map((name) => startTraced(t, store, key, name)))
      const { fence, traceId } = await one.ask('acquire')
      const holding = await spanOf(one, 'acquire')
      assert.equal(holding.traceId, traceId, 'the span is in the trace of the holder')

      const observer = store.client(t)
      const alone = await observer.inspect(key)
      assert.equal(alone.holder, 'one')
      assert.equal(alone.trace, traceparent(holding))
      assert.equal(alone.leases[0].trace, alone.trace)

      two.tell('acquire')
      const { waiters } = await until('the other process to wait', async () => {
        const info = await observer.inspect(key)
        return info.waiters.length > 0 && info
      })
      const waiting = await spanOf(two, 'acquire')
      assert.equal(waiters[0].holder, 'two')
      assert.equal(waiters[0].trace, traceparent(waiting))
      const { locks } = await observer.list({ pattern: key })
      assert.deepEqual(
        locks.map(({ holder, trace, waiters }) => [holder, trace, waiters.map(({ holder, trace }) => [holder, trace])]),
        [['one', traceparent(holding), [['two', traceparent(waiting)]]]],
      )

      await two.ask('blocked')
      await one.ask('release')
      const next = await two.next('acquire')
      assert.ok(next.fence > fence)
      const { links, events } = await spanOf(two, 'acquire')
      assert.deepEqual(links, [
        {
          context: { traceId, spanId: holding.spanId, traceFlags: 1, isRemote: true },
          attributes: { 'leasehold.link': 'blocked-by', 'leasehold.key': key },
        },
      ])
      assert.equal(events.length, 1)
      assert.equal(events[0].name, 'leasehold.blocked')
      assert.equal(events[0].attributes['leasehold.holder.name'], 'one')
      assert.equal(events[0].attributes['leasehold.holder.fence'], fence)
      const after = await observer.inspect(key)
      assert.equal(after.holder, 'two')
      assert.equal(after.trace, traceparent(waiting), 'the lease was handed over with the trace')
      assert.deepEqual((await spanOf(one, 'acquire')).links, [])
    })

    test('a waiter for a shared lock is linked to the holder in another process', async (t) => {
      const key = store.key()
      const [one, two] = await Promise.all(['one', 'two'].map((name) => startTraced(t, store, key, name, 2)))
      const { traceId } = await one.ask('acquire')
      await two.ask('acquire')
      two.tell('acquire')
      const observer = store.client(t)
      await until('the waiter to wait', async () => (await observer.inspect(key)).waiters.length > 0)
      await two.ask('blocked')
      await one.ask('release')
      await two.next('acquire')
      const { spans } = await two.ask('spans')
      const links = spans.filter(({ name }) => name === 'leasehold acquire').map(({ links }) => links)
      const holding = await spanOf(one, 'acquire')
      assert.deepEqual(
        links.map((each) => each.map(({ context }) => [context.traceId, context.spanId])),
        [[], [[traceId, holding.spanId]]],
      )
    })

    test('a holder that is not instrumented has a name and no trace', async (t) => {
      const key = store.key()
      const plain = store.client(t, { name: 'plain' })
      const lease = await plain.acquire(key)
      const { remaining, ...info } = await plain.inspect(key)
      const known = { holder: 'plain', fence: lease.fence }
      assert.deepEqual(info, {
        ...known,
        shared: false,
        leases: [{ ...known, remaining }],
        waiters: [],
        waiting: 0,
      })
      const two = await startTraced(t, store, key, 'two')
      two.tell('acquire')
      await two.ask('blocked')
      await lease.release()
      await two.next('acquire')
      const { links, events } = await spanOf(two, 'acquire')
      assert.deepEqual(links, [])
      assert.equal(events[0].attributes['leasehold.holder.name'], 'plain')
      const waiting = plain.acquire(key)
      const { waiters } = await until('the waiter to wait', async () => {
        const seen = await plain.inspect(key)
        return seen.waiters.length > 0 && seen
      })
      assert.deepEqual(Object.keys(waiters[0]).sort(), ['age', 'holder', 'shared'])
      assert.equal(waiters[0].holder, 'plain')
      await two.ask('release')
      await (await waiting).release()
    })
  },
  sharedStoreNames,
)
