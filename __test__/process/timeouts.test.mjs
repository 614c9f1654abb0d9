// What LockTimeoutError says of holders in other processes, and how often the client asks the store
// about them.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { describe, test } from 'node:test'
import { createLockClient, LockTimeoutError } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'
import { openStore, sharedStoreNames } from '../support/stores.mjs'
import { named, timeout } from '../support/time-outs.mjs'

/** How much a busy machine may add to a timer, in ms. */
const SLACK = 500

const clientOf = (t, store, options = {}) => {
  const client = createLockClient({ store, ...options })
  atEnd(t, () => client.close())
  return client
}

for (const name of sharedStoreNames) {
  describe(`process: time-outs, ${name}`, { timeout: 240_000 }, () => {
    test('the error names the holder in another process, and counts the waiters of a third one', async (t) => {
      const store = await openStore(name, t)
      const key = randomUUID()
      const holder = startChild(t, 'holder.mjs', { store, key, ttl: 10_000, client: { name: 'mailer-1' } })
      const { at } = await holder.next('held')
      const others = startChild(t, 'waiters.mjs', { store, key, client: { name: 'mailer-2' } })
      await others.next('ready')
      await others.ask('join', { ids: [1, 2, 3] })
      const locks = clientOf(t, store, { name: 'mailer-3' })
      await until('mailer-2 to wait', async () => (await locks.inspect(key)).waiters.length === 1)
      const own = locks.acquire(key, { wait: 60_000 })
      const error = await named(() => locks.acquire(key, { wait: 300 }))
      const told = now()
      const words = `^could not acquire "${key}" within 300 ms: held by "mailer-1" for [\\d.]+ m?s; 2 others wait\\. Try again`
      assert.match(error.message, new RegExp(words))
      assert.deepEqual([error.holder, error.waiters], ['mailer-1', 2])
      // The process wrote `at` after it had the lock.
      assert.ok(error.heldFor >= 300 && error.heldFor <= told - at + SLACK, `${error.heldFor} of ${told - at} ms`)
      await holder.ask('release')
      await others.next('served')
      await others.ask('giveUp')
      await (await own).release()
    })

    test('a call does not count itself among the waiters, even if it has polled at the last moment', async (t) => {
      const store = await openStore(name, t)
      const locks = clientOf(t, store, { name: 'mailer-1' })
      const keys = Array.from({ length: 10 }, () => randomUUID())
      for (const key of keys) await locks.acquire(key, { ttl: 60_000 })
      const waiters = startChild(t, 'waiters.mjs', { store, client: { name: 'mailer-2' } })
      await waiters.next('ready')
      for (const [i, key] of keys.entries()) await waiters.ask('join', { ids: [i], key, wait: 700 })
      await until('all waiters to wait', async () => {
        const infos = await Promise.all(keys.map((key) => locks.inspect(key)))
        return infos.every((info) => info.waiters.length === 1)
      })
      // When the process resumes, a poll and the end of the wait are due at the same time.
      waiters.signal('SIGSTOP')
      await sleep(1_200)
      waiters.signal('SIGCONT')
      for (const _ of keys) {
        const { error } = await waiters.next('failed')
        assert.equal(error.name, 'LockTimeoutError')
        assert.doesNotMatch(error.message, /other waits|others wait/)
      }
    })
  })
}

describe('process: time-outs at a Redis server', {
  skip: !sharedStoreNames.includes('redis'),
  timeout: 240_000,
}, () => {
  /** Notes all commands of the server. Returns a function that counts the inspected locks. */
  async function countInspects(server, locks) {
    const redis = await server.command()
    await redis('CONFIG', 'SET', 'slowlog-max-len', 100_000)
    await redis('CONFIG', 'SET', 'slowlog-log-slower-than', 0)
    const scripts = async () => {
      const entries = await redis('SLOWLOG', 'GET', -1)
      return entries.map(([, , , words]) => words).filter(([command]) => command.toUpperCase() === 'EVALSHA')
    }
    await redis('SLOWLOG', 'RESET')
    await locks.inspect('for the hash of the script')
    const [[, sha]] = await scripts()
    await redis('SLOWLOG', 'RESET')
    return async () => {
      const asked = (await scripts()).filter(([, script]) => script === sha)
      return asked.reduce((sum, [, , keys]) => sum + Number(keys) / 2, 0)
    }
  }

  test('1,000 waits for one lock that end together cause one or two inspects, and 200 waits for 20 locks at most 40', async (t) => {
    const server = await startRedis(t)
    const [a, b] = ['web-1', 'web-2'].map((name) => clientOf(t, server.url(), { name }))
    const count = await countInspects(server, b)
    const keys = Array.from({ length: 20 }, (_, i) => `k${i}`)
    await Promise.all(keys.map((key) => a.acquire(key, { ttl: 60_000 })))
    let [asked, first] = [0, 0]
    for (const [calls, locks] of [
      [1_000, 1],
      [200, 20],
    ]) {
      first = 0
      const wait = async (key) => {
        const error = await b.acquire(key, { wait: 400 }).catch((error) => error)
        first ||= now()
        assert.ok(error instanceof LockTimeoutError, error?.stack)
        assert.equal(error.holder, 'web-1')
      }
      await Promise.all(Array.from({ length: calls }, (_, i) => wait(keys[i % locks])))
      // An answer counts for 250 ms. A busy machine may take longer to reject all calls. If a poll
      // of the waiter is under way when its wait ends, the client inspects a second time.
      const most = locks * 2 * (1 + Math.floor((now() - first) / 250))
      const more = (await count()) - asked
      asked += more
      assert.ok(more >= locks && more <= most, `${more} inspects for ${calls} waits for ${locks} locks`)
    }
  })

  test('tryAcquire(), wait: 0, and a single try cause no inspect', async (t) => {
    const server = await startRedis(t)
    const [a, b] = [clientOf(t, server.url()), clientOf(t, server.url())]
    const count = await countInspects(server, b)
    await a.acquire('k')
    assert.equal(await b.tryAcquire('k'), null)
    assert.equal(await b.tryAcquire(['j', 'k']), null)
    for (const options of [{ wait: 0 }, { retry: { retries: 0 } }, { retry: true, wait: 0 }]) {
      await assert.rejects(b.acquire('k', options), LockTimeoutError)
      await assert.rejects(b.acquire(['j', 'k'], options), LockTimeoutError)
    }
    assert.equal(await count(), 0)
    await assert.rejects(b.acquire('k', { retry: { retries: 1, minDelay: 1 } }), LockTimeoutError)
    assert.equal(await count(), 1, 'the inspects are counted')
  })

  test("another library's lock has no name", async (t) => {
    const server = await startRedis(t)
    const locks = clientOf(t, server.url())
    await server.ask('SET', 'lock:k', 'a token', 'PX', 60_000)
    const error = await named(() => locks.acquire('k', { wait: 300 }))
    assert.equal(
      error.message,
      'could not acquire "k" within 300 ms: held by a client of another library. Try again later, or set a longer wait',
    )
    assert.deepEqual([error.holder, error.heldFor, error.waiters], [undefined, undefined, 0])
  })

  test('the client asks less often about a lock with a crowd of waiters', async (t) => {
    const server = await startRedis(t)
    const [a, b] = [clientOf(t, server.url()), clientOf(t, server.url())]
    await a.acquire('k', { ttl: 60_000 })
    const crowd = 3_000
    // Write the queue as a store does, because real waiters would keep the machine busy.
    const script = `
      for i = 1, ${crowd} do
        redis.call('ZADD', '{lock:k}:queue', i, 'token-' .. i)
        redis.call('ZADD', '{lock:k}:alive', '+inf', 'token-' .. i)
        redis.call('HSET', '{lock:k}:waiters', 'token-' .. i, '0 ' .. i .. ' 1500 - waiter')
      end`
    await server.ask('EVAL', script, 0)
    assert.equal((await named(() => b.acquire('k', { wait: 1_000 }))).waiters, crowd)
    await server.ask('CONFIG', 'RESETSTAT')
    const began = now()
    // Each call begins after the inspect of the call before it.
    const retry = { retries: 1, minDelay: 1 }
    for (let i = 0; i < 50; i++) await timeout(b.acquire('k', { retry }))
    const ms = now() - began
    // The server looks up every waiter.
    const [, reads] = /cmdstat_hget:calls=(\d+)/.exec(await server.ask('INFO', 'commandstats'))
    const asked = Math.round(reads / crowd)
    t.diagnostic(`${asked} inspects in ${ms.toFixed()} ms`)
    // The client does not ask again for 20 µs per waiter: 60 ms.
    assert.ok(asked <= 1 + ms / 60, `${asked} inspects in ${ms} ms`)
  })

  test('a client has at most 32 inspects under way', async (t) => {
    const server = await startRedis(t)
    const relay = await startRelay(t, server.port)
    const [a, b] = [clientOf(t, server.url()), clientOf(t, `redis://127.0.0.1:${relay.port}`, { storeTimeout: 5_000 })]
    const keys = Array.from({ length: 100 }, (_, i) => `k${i}`)
    await Promise.all(keys.map((key) => a.acquire(key, { ttl: 60_000 })))
    const calls = Promise.all(keys.map((key) => timeout(b.acquire(key, { wait: 1_000 }))))
    await until('all waiters to wait', async () => (await a.list()).locks.every(({ waiters }) => waiters.length === 1))
    // Each answer takes 100 ms, and a call waits for 250 ms.
    relay.slow(100, { directions: ['toClient'] })
    const told = (await calls).filter(({ waiters }) => waiters !== undefined)
    assert.ok(told.length <= 64, `${told.length} of 100`)
    // A busy machine may be slower.
    if (told.length < 64) t.diagnostic(`${told.length} of 100`)
    assert.ok(told.length === 0 || told.length >= 32, `${told.length} of 100`)
  })

  test('the client does not read a reply of more than 1 MB', async (t) => {
    const name = 'x'.repeat(255)
    const store = `memory:${randomUUID()}`
    const [a, b] = [clientOf(t, store, { name, handOffs: 0 }), clientOf(t, store)]
    await a.acquire('k', { ttl: 60_000 })
    const crowd = []
    const join = (count) => {
      for (let i = 0; i < count; i++) crowd.push(a.acquire('k', { wait: 60_000 }).catch(() => {}))
      return until('the crowd to wait', async () => (await a.inspect('k')).waiters.length === crowd.length)
    }
    await join(1_000)
    assert.equal((await named(() => b.acquire('k', { wait: 50 }))).waiters, 1_000)
    await join(4_000)
    const error = await timeout(b.acquire('k', { wait: 50 }))
    assert.match(error.message, /within 50 ms: already held/)
    await a.close()
    await Promise.all(crowd)
  })
})
