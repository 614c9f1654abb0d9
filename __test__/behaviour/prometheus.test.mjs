// `leasehold/prometheus`, with prom-client.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { Counter, register as globalRegister, Registry } from 'prom-client'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { aborted } from '../support/leases.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'

/**
 * Scrapes `register`. Returns the values by name and labels, as in the text that Prometheus gets.
 */
async function scrape(register) {
  const lines = (await register.metrics()).split('\n').filter((line) => line && !line.startsWith('#'))
  return Object.fromEntries(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]))
}

overStores('prometheus', (store) => {
  test('the metrics count calls, waits, holds, losses and time-outs', async (t) => {
    const register = new Registry()
    const locks = store.client(t, { handOffs: 0 })
    collect(locks, { register })
    const key = store.key()
    const first = await locks.acquire(key)
    const waiting = locks.acquire(key)
    await until('a waiter', () => locks.stats().waiting === 1)
    const busy = await scrape(register)
    assert.equal(busy.leasehold_held, 1)
    assert.equal(busy.leasehold_waiting, 1)
    await first.release()
    const second = await waiting
    assert.equal(await locks.tryAcquire(key), null)
    await assert.rejects(locks.acquire(key, { wait: 30 }))
    await assert.rejects(locks.acquire(key, { signal: AbortSignal.abort() }))
    await second.renew()
    await second.release()
    const short = await locks.semaphore(store.key(), 2).acquire({ ttl: 200, autoRenew: false })
    await aborted(short)
    const now = await scrape(register)
    const expected = {
      'leasehold_acquires_total{outcome="acquired",mode="exclusive"}': 2,
      'leasehold_acquires_total{outcome="acquired",mode="semaphore"}': 1,
      'leasehold_acquires_total{outcome="busy",mode="exclusive"}': 1,
      'leasehold_acquires_total{outcome="timeout",mode="exclusive"}': 1,
      'leasehold_acquires_total{outcome="aborted",mode="exclusive"}': 1,
      leasehold_contended_total: 3,
      leasehold_timeouts_total: 1,
      'leasehold_lost_total{reason="expired"}': 1,
      'leasehold_lost_total{reason="taken"}': 0,
      'leasehold_wait_seconds_count{outcome="acquired"}': 3,
      'leasehold_hold_seconds_count{outcome="released"}': 2,
      'leasehold_hold_seconds_count{outcome="lost"}': 1,
      leasehold_granted_total: 3,
      leasehold_released_total: 2,
      leasehold_renewals_total: locks.stats().renewals,
      leasehold_held: 0,
      leasehold_waiting: 0,
    }
    for (const [name, value] of Object.entries(expected)) assert.equal(now[name], value, name)
    assert.ok(now.leasehold_renewals_total >= 1)
    const sum = now['leasehold_wait_seconds_sum{outcome="timeout"}']
    assert.ok(sum >= 0.029 && sum < 10, `${sum} s`)
    assert.equal(now['leasehold_wait_seconds_bucket{le="0.02",outcome="timeout"}'], 0)
    assert.equal(now['leasehold_wait_seconds_bucket{le="60",outcome="timeout"}'], 1)
  })
})

describe('prometheus: registries', () => {
  function open(t, store = 'memory:prometheus') {
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    return locks
  }

  test('several clients share a registry with different labels', async (t) => {
    const register = new Registry()
    const [one, other] = [open(t), open(t)]
    const collection = collect(one, { register, labels: { client: 'one' } })
    collect(other, { register, labels: { client: 'other' } })
    await one.withLock('a', () => {})
    await other.withLock('b', () => {})
    await other.withLock('b', () => {})
    const now = await scrape(register)
    assert.equal(now['leasehold_granted_total{client="one"}'], 1)
    assert.equal(now['leasehold_granted_total{client="other"}'], 2)
    assert.equal(now['leasehold_acquires_total{client="other",outcome="acquired",mode="exclusive"}'], 2)
    collection.unregister()
    collection.unregister()
    await one.withLock('a', () => {})
    const then = await scrape(register)
    assert.deepEqual(
      Object.keys(then).filter((name) => name.includes('"one"')),
      [],
    )
    assert.equal(then['leasehold_granted_total{client="other"}'], 2)
    collect(one, { register, labels: { client: 'one' } })
    assert.equal((await scrape(register))['leasehold_granted_total{client="one"}'], 2)
  })

  test('the last unregister() removes all metrics from the registry', async (t) => {
    const register = new Registry()
    const collection = collect(open(t), { register, prefix: 'my_' })
    assert.ok('my_held' in (await scrape(register)))
    collection.unregister()
    assert.deepEqual(register.getMetricsAsArray(), [])
    collect(open(t), { register, prefix: 'my_', labels: { other: 'label' } })
  })

  test('a client replaces a closed one in a registry, and its metrics start at zero', async (t) => {
    const register = new Registry()
    const first = open(t)
    const collection = collect(first, { register })
    await first.withLock('a', () => {})
    await first.close()
    assert.equal(
      (await scrape(register)).leasehold_granted_total,
      1,
      'the registry keeps the figures of the closed client until then',
    )
    const second = open(t)
    collect(second, { register })
    for (const turn of ['b', 'c']) await second.withLock(turn, () => {})
    const now = await scrape(register)
    assert.equal(now.leasehold_granted_total, 2)
    assert.equal(now['leasehold_acquires_total{outcome="acquired",mode="exclusive"}'], 2)
    collection.unregister()
    assert.equal((await scrape(register)).leasehold_granted_total, 2, 'the new client had replaced the first one')
  })

  test('a client may have other labels than a closed one, and its metrics start at zero', async (t) => {
    const register = new Registry()
    const [first, second] = [open(t), open(t)]
    const collection = collect(first, { register })
    await first.withLock('a', () => {})
    assert.throws(() => collect(second, { register, labels: { client: 'b' } }), /whose labels are none/)
    await first.close()
    collect(second, { register, labels: { client: 'b' } })
    collection.unregister()
    const now = await scrape(register)
    assert.equal(now['leasehold_granted_total{client="b"}'], 0)
    assert.equal(now.leasehold_granted_total, undefined)
  })

  test('after register.clear(), a client may use other labels, and its metrics start at zero', async (t) => {
    const register = new Registry()
    const locks = open(t)
    const collection = collect(locks, { register, labels: { client: 'x' } })
    await locks.withLock('a', () => {})
    register.clear()
    const again = collect(locks, { register })
    await locks.withLock('b', () => {})
    assert.equal((await scrape(register))['leasehold_acquires_total{outcome="acquired",mode="exclusive"}'], 1)
    collection.unregister()
    assert.ok('leasehold_held' in (await scrape(register)), 'unregister() of a cleared collection removes nothing')
    assert.throws(() => collect(locks, { register }), /registered already/)
    again.unregister()
    assert.deepEqual(register.getMetricsAsArray(), [])
  })

  test('the default registry is that of prom-client', async (t) => {
    const collection = collect(open(t))
    assert.ok(globalRegister.getSingleMetric('leasehold_held'))
    collection.unregister()
    assert.equal(globalRegister.getSingleMetric('leasehold_held'), undefined)
  })

  test('conflicting names and labels are refused with advice', (t) => {
    const register = new Registry()
    const locks = open(t)
    collect(locks, { register })
    const refuses = (message, ...given) =>
      assert.throws(() => collect(...given), { code: 'ERR_INVALID_ARG_VALUE', message })
    refuses(/registered already.*unregister\(\)/, locks, { register })
    refuses(/same labels.*client: 'jobs'/, open(t), { register })
    refuses(/whose labels are none/, open(t), { register, labels: { client: 'x' } })
    refuses(/may not have "reason"/, open(t), { register, prefix: 'x_', labels: { reason: 'x' } })
    refuses(/"prefix"/, open(t), { register, prefix: 'no-good' })
    refuses(/does not allow/, open(t), { register, prefix: 'y_', labels: { 1: 'x' } })
    const taken = new Registry()
    new Counter({ name: 'leasehold_lost_total', help: 'of another library', registers: [taken] })
    refuses(/leasehold_lost_total that is not of leasehold/, open(t), { register: taken })
    assert.equal(taken.getMetricsAsArray().length, 1, 'no metric of leasehold is left behind')
    assert.throws(() => collect({}), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => collect(open(t), { register: {} }), { code: 'ERR_INVALID_ARG_TYPE' })
    assert.throws(() => collect(open(t), { register, wrong: 1 }), /the options are "register"/)
  })

  test('the metrics show an outage: errors by reason, and the breaker of the server', async (t) => {
    const redis = await startRedis(t)
    const register = new Registry()
    const locks = createLockClient({ store: redis.url(), storeTimeout: 100 })
    atEnd(t, () => locks.close())
    collect(locks, { register })
    const breaker = `leasehold_breaker_state{store="${redis.url()}"}`
    await locks.withLock('key', () => {})
    assert.equal((await scrape(register))[breaker], 0)
    await redis.kill()
    await until('the breaker to open', async () => {
      await assert.rejects(locks.tryAcquire('key'))
      return locks.stats().stores[0].state !== 'closed'
    })
    const now = await scrape(register)
    assert.ok(now[breaker] >= 1)
    assert.ok(now['leasehold_errors_total{reason="unreachable"}'] >= 1)
    assert.ok(now.leasehold_store_errors_total >= 1)
    assert.ok(now['leasehold_acquires_total{outcome="unavailable",mode="exclusive"}'] >= 1)
  })
})
