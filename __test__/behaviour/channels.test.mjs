// The messages on diagnostics_channel match their types, reach every subscriber, and contain no
// secret.

import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import diagnostics from 'node:diagnostics_channel'
import { describe, test } from 'node:test'
import { inspect } from 'node:util'
import { createLockClient, createLockWorker } from 'leasehold'
import { declared, listen } from '../support/channels.mjs'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { aborted } from '../support/leases.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis } from '../support/servers.mjs'
import { overStores } from '../support/stores.mjs'

const ACQUIRE = 'tracing:leasehold:acquire'
const RENEW = 'tracing:leasehold:renew'
const RELEASE = 'tracing:leasehold:release'
const operation = (name, ...failed) => [
  `${name}:start`,
  `${name}:end`,
  ...failed,
  `${name}:asyncStart`,
  `${name}:asyncEnd`,
]

overStores('channels', (store) => {
  test('a lease has messages from the call of acquire() to its release', async (t) => {
    const { heard, faults, names, on } = listen(t)
    const key = store.key()
    const locks = store.client(t, { name: 'me' })
    const lease = await locks.acquire(key, { ttl: 5_000, wait: 700 })
    await lease.renew(6_000)
    const token = lease.token
    assert.equal(await lease.release(), true)
    assert.deepEqual(faults, [])
    assert.deepEqual(names(), [
      `${ACQUIRE}:start`,
      `${ACQUIRE}:end`,
      'leasehold:granted',
      `${ACQUIRE}:asyncStart`,
      `${ACQUIRE}:asyncEnd`,
      ...operation(RENEW),
      `${RELEASE}:start`,
      'leasehold:released',
      `${RELEASE}:end`,
      `${RELEASE}:asyncStart`,
      `${RELEASE}:asyncEnd`,
    ])
    assert.equal(heard[0].was.outcome, undefined, 'the outcome is unknown at the start')
    const [acquired] = on(`${ACQUIRE}:asyncEnd`)
    const { client, name, method, mode, wait, ttl, outcome, fence, tries } = acquired
    assert.deepEqual(
      { name, method, mode, wait, ttl, outcome, fence, tries },
      {
        name: 'me',
        method: 'acquire',
        mode: 'exclusive',
        wait: 700,
        ttl: 5_000,
        outcome: 'acquired',
        fence: lease.fence,
        tries: 1,
      },
    )
    assert.equal(client, locks)
    assert.deepEqual(acquired.keys, [key])
    const [granted] = on('leasehold:granted')
    assert.equal(granted, acquired.leases[0])
    assert.equal(granted, on('leasehold:released')[0], 'one lease has one object')
    assert.equal(granted, on(`${RENEW}:start`)[0].lease)
    assert.equal(granted.outcome, 'released')
    assert.ok(granted.held > 0 && acquired.duration > 0)
    assert.equal(on(`${RELEASE}:asyncEnd`)[0].outcome, 'released')
    assert.equal(inspect(heard, { depth: 12, showHidden: true }).includes(token), false, 'a message contains the token')
  })

  test('a call that fails has messages to its end, with the reason', async (t) => {
    const locks = store.client(t)
    const key = store.key()
    const holder = await store.client(t).acquire(key)
    const { faults, on, names } = listen(t)
    assert.equal(await locks.tryAcquire(key), null)
    await assert.rejects(locks.acquire(key, { wait: 20 }))
    await assert.rejects(locks.acquire(key, { signal: AbortSignal.timeout(20) }))
    await assert.rejects(locks.acquire(key, { signal: AbortSignal.abort() }))
    await assert.rejects(locks.acquire([key, store.key()], { wait: 20 }))
    await assert.rejects(locks.acquire(key, { retry: { retries: 2, minDelay: 1, maxDelay: 1 } }))
    await holder.release()
    await locks.close()
    await assert.rejects(locks.acquire(key))
    assert.deepEqual(faults, [])
    const acquired = on(`${ACQUIRE}:asyncEnd`).filter(({ client }) => client === locks)
    const outcomes = acquired.map(({ outcome, tries, keys }) => [outcome, tries, keys.length])
    assert.deepEqual(outcomes, [
      ['busy', 1, 1],
      ['timeout', 1, 1],
      ['aborted', 1, 1],
      ['aborted', 1, 1],
      ['timeout', 1, 2],
      ['timeout', 3, 1],
      ['closed', 1, 1],
    ])
    assert.ok(acquired.every(({ error, outcome }) => (error === undefined) === (outcome === 'busy')))
    assert.equal(on(`${ACQUIRE}:error`).length, 6)
    assert.equal(names().filter((name) => name === `${ACQUIRE}:start`).length, 7)
    assert.equal(names().filter((name) => name === `${ACQUIRE}:end`).length, 7)
  })

  test('a loss has its reason, and a renewal of a lost lease fails', async (t) => {
    const { faults, on } = listen(t)
    const lease = await store.client(t).acquire(store.key(), { ttl: 200, autoRenew: false })
    await aborted(lease)
    const [message] = on('leasehold:lost')
    assert.equal(message, on('leasehold:granted')[0])
    assert.deepEqual([message.outcome, message.reason], ['lost', 'expired'])
    assert.equal(message.error, lease.signal.reason)
    await assert.rejects(lease.renew())
    const [renewal] = on(`${RENEW}:asyncEnd`)
    assert.deepEqual([renewal.outcome, renewal.reason], ['lost', 'expired'])
    assert.equal(await lease.release(), false)
    assert.deepEqual(on('leasehold:released'), [], 'a lease ends once')
    assert.deepEqual(faults, [])
  })

  test('several keys, shared locks, tickets and workers have their messages', async (t) => {
    const { faults, on } = listen(t)
    const locks = store.client(t)
    const keys = [store.key(), store.key()].sort()
    await locks.withLock(keys, (leases) => {
      const [acquired] = on(`${ACQUIRE}:asyncEnd`)
      assert.deepEqual(acquired.keys, keys)
      assert.deepEqual(
        acquired.leases.map(({ key, fence }) => [key, fence]),
        Object.entries(leases.fences),
      )
    })
    assert.deepEqual(
      on('leasehold:released')
        .map(({ key }) => key)
        .sort(),
      keys,
    )
    await locks.semaphore(store.key(), 3).withLock(() => {})
    await locks.readWriteLock(store.key()).read.withLock(() => {})
    const adopted = await locks.adopt(await (await locks.acquire(store.key())).detach())
    await adopted.release()
    const modes = on(`${ACQUIRE}:asyncEnd`).map(({ method, mode }) => `${method} ${mode}`)
    assert.deepEqual(modes, [
      'acquire exclusive',
      'acquire semaphore',
      'acquire read',
      'acquire exclusive',
      'adopt exclusive',
    ])
    assert.deepEqual(
      on('leasehold:released')
        .slice(-2)
        .map(({ outcome }) => outcome),
      ['detached', 'released'],
    )

    const worker = createLockWorker({ client: locks, key: store.key(), startWork: () => {} })
    worker.start()
    await until('the worker to work', () => worker.state === 'working')
    await worker.stop()
    const states = on('leasehold:worker')
    assert.deepEqual(
      states.map(({ state }) => state),
      ['acquiring', 'working', 'cleanup', 'releasing', 'idle'],
    )
    assert.ok(states.every((state) => state.worker === worker && state.workerId === worker.workerId))
    assert.equal(on(`${ACQUIRE}:asyncEnd`).at(-1).method, 'worker')
    assert.deepEqual(faults, [])
  })

  test('the engine reports renewals only of leases that were requested after the subscription', async (t) => {
    const locks = store.client(t, { ttl: 600 })
    const before = await locks.acquire(store.key())
    const { faults, on } = listen(t, ['leasehold:renewed'])
    const lease = await locks.acquire(store.key())
    await until('some renewals', () => on('leasehold:renewed').length >= 2)
    assert.ok(on('leasehold:renewed').every(({ fence }) => fence === lease.fence))
    assert.ok(on('leasehold:renewed')[0].renewals >= 2)
    await Promise.all([lease.release(), before.release()])
    assert.deepEqual(faults, [])
  })

  test('every message is published in the async context of its caller', async (t) => {
    const storage = new AsyncLocalStorage()
    const contexts = []
    const names = declared.names.filter((name) => name.startsWith('tracing:') || name === 'leasehold:granted')
    for (const name of names) {
      const listener = () => contexts.push(storage.getStore())
      diagnostics.subscribe(name, listener)
      atEnd(t, () => diagnostics.unsubscribe(name, listener))
    }
    const locks = store.client(t)
    const key = store.key()
    await storage.run('caller', async () => {
      const lease = await locks.acquire(key)
      await lease.renew()
      const waiting = assert.rejects(locks.acquire(key, { wait: 20 }))
      await waiting
      assert.equal(storage.getStore(), 'caller')
      await lease.release()
    })
    assert.equal(contexts.length, 4 + 1 + 4 + 5 + 4)
    assert.deepEqual([...new Set(contexts)], ['caller'])
  })

  test('a subscriber gets no message of a lease that was granted before or after its subscription', async (t) => {
    const locks = store.client(t)
    const before = await locks.acquire(store.key())
    const late = listen(t)
    await before.release()
    assert.deepEqual(late.heard, [])

    const names = []
    const listener = (_message, name) => names.push(name)
    diagnostics.subscribe('leasehold:granted', listener)
    await locks.withLock(store.key(), () => {})
    diagnostics.unsubscribe('leasehold:granted', listener)
    await locks.withLock(store.key(), () => {})
    assert.deepEqual(names, ['leasehold:granted'])
  })
})

describe('channels: stores', () => {
  test('messages about an unreachable store and its breaker have the reason and no password', async (t) => {
    const { heard, faults, on } = listen(t)
    const port = await freePort()
    const locks = createLockClient({ store: `redis://user:s3cret@127.0.0.1:${port}/2`, storeTimeout: 200 })
    atEnd(t, () => locks.close())
    await until('the breaker to open', async () => {
      await assert.rejects(locks.tryAcquire('key'))
      return on('leasehold:breaker').length > 0
    })
    const [acquired] = on(`${ACQUIRE}:asyncEnd`)
    assert.deepEqual([acquired.outcome, acquired.reason], ['unavailable', 'unreachable'])
    assert.deepEqual(acquired.store, { kind: 'redis', url: `redis://user@127.0.0.1:${port}/2` })
    assert.equal(on('leasehold:breaker')[0].health.store, acquired.store.url)
    assert.deepEqual(faults, [])
    assert.equal(inspect(heard, { depth: 12, showHidden: true }).includes('s3cret'), false)
  })

  test('the message of a release without a reply has the outcome unavailable', async (t) => {
    const redis = await startRedis(t)
    const { faults, on } = listen(t)
    const locks = createLockClient({ store: redis.url(), storeTimeout: 100 })
    atEnd(t, () => locks.close())
    const lease = await locks.acquire('key', { autoRenew: false })
    await redis.kill()
    await assert.rejects(lease.renew())
    assert.equal(on(`${RENEW}:asyncEnd`)[0].outcome, 'unavailable')
    await assert.rejects(lease.release())
    assert.equal(on(`${RELEASE}:asyncEnd`)[0].outcome, 'unavailable')
    assert.equal(on('leasehold:released')[0].outcome, 'released')
    assert.deepEqual(faults, [])
  })

  for (const [given, kind, url] of [
    ['redis-cluster://u:p%40ss@a:1,b:2', 'redis-cluster', 'redis-cluster://a:1,b:2'],
    ['redis-cluster://u:p@a:1,u:p@b:2', 'redis-cluster', 'redis-cluster://b:2'],
    ['redis-sentinel://u:p@a:1,b:2/main', 'redis-sentinel', 'redis-sentinel://u@a:1,b:2/main'],
    ['redis+unix:///tmp/no.sock?pass=p', 'redis', 'redis+unix:///tmp/no.sock'],
    [['redis://u:p@a:1', 'redis://:p@b:2', 'redis://c:3'], 'quorum', 'redis://u@a:1,redis://b:2,redis://c:3'],
  ]) {
    test(`messages show ${given} without its password`, async (t) => {
      const { on } = listen(t)
      const locks = createLockClient({ store: given })
      atEnd(t, () => locks.close())
      await assert.rejects(locks.acquire('key', { signal: AbortSignal.abort() }))
      assert.deepEqual(on(`${ACQUIRE}:start`)[0].store, { kind, url })
    })
  }
})
