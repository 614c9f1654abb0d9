// Checks LockTimeoutError on every store: it names the holder, the time for which it has held the
// lock, and the number of waiters, and says what to do.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { now, sleep, until } from '../support/clock.mjs'
import { allStoreNames, overStores } from '../support/stores.mjs'
import { named, timeout } from '../support/time-outs.mjs'

const LONGER = '. Try again later, or set a longer wait'
const MORE_RETRIES = '. Try again later, or allow more retries'
const OWN = '. Use the lease if this code has it; otherwise try again later, or '

/** Matches a message. `…` stands for a time. */
const message = (text) =>
  new RegExp(`^${text.replace(/[().]/g, '\\$&').replaceAll('…', '(less than 1 ms|[\\d.]+ m?s)')}$`)

overStores(
  'time-outs',
  (store) => {
    test('the error of a wait has the holder, its time, and the number of waiters', async (t) => {
      const [a, b, c] = ['web-1', 'web-2', 'web-3'].map((name) => store.client(t, { name }))
      const key = store.key()
      const before = now()
      const lease = await a.acquire(key)
      const held = now()
      const third = c.acquire(key, { wait: 60_000 })
      await until('web-3 to wait', async () => (await a.inspect(key)).waiters.length === 1)
      const error = await named(() => b.acquire(key, { wait: 300 }))
      const end = now()
      assert.match(
        error.message,
        message(`could not acquire "${key}" within 300 ms: held by "web-1" for …; 1 other waits${LONGER}`),
      )
      assert.deepEqual([error.key, error.holder, error.waiters], [key, 'web-1', 1])
      // One of the two clocks counts whole ms.
      const [least, most] = [300, end - before + 2]
      assert.ok(error.heldFor >= least && error.heldFor <= most, `${error.heldFor} of ${end - held} ms`)
      await lease.release()
      await (await third).release()
    })

    test('callers that time out get an error that says if their own client holds the lock', async (t) => {
      const locks = store.client(t, { name: 'web-1' })
      const key = store.key()
      const calls = Array.from({ length: 4 }, () => locks.withLock(key, { wait: 300 }, () => sleep(1_000)))
      const outcomes = await Promise.allSettled(calls)
      assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1)
      for (const { status, reason } of outcomes) {
        if (status === 'fulfilled') continue
        const error = await timeout(Promise.reject(reason))
        const words = `could not acquire "${key}" within 300 ms: held by this client ("web-1")`
        // On a busy machine, the store may reply too late with the time.
        const [untimed, timed] = ['', ' for …'].map((time) => message(`${words}${time}${OWN}set a longer wait`))
        assert.ok(untimed.test(error.message) || timed.test(error.message), error.message)
        assert.equal(error.holder, 'web-1')
      }
    })

    test('a nested call gets an error that names its own client', async (t) => {
      const locks = store.client(t, { name: 'web-1' })
      const key = store.key()
      const words = `held by this client ("web-1")`
      await locks.withLock(key, async () => {
        const waited = await timeout(locks.acquire(key, { wait: 100 }))
        assert.ok(waited.message.startsWith(`could not acquire "${key}" within 100 ms: ${words}`), waited.message)
        assert.ok(waited.message.endsWith(`${OWN}set a longer wait`), waited.message)
        const retried = await timeout(locks.acquire(key, { retry: { retries: 1, minDelay: 5 } }))
        assert.ok(retried.message.startsWith(`could not acquire "${key}" in 2 tries: ${words}`), retried.message)
        assert.ok(retried.message.endsWith(`${OWN}allow more retries`), retried.message)
      })
    })

    test('"this client" is the client of the call, and not another one of the same name', async (t) => {
      const [a, b] = [store.client(t, { name: 'web' }), store.client(t, { name: 'web' })]
      const key = store.key()
      await a.acquire(key)
      const [own, other] = await Promise.all([a, b].map((locks) => named(() => locks.acquire(key, { wait: 300 }))))
      assert.match(own.message, /: held by this client \("web"\) for /)
      assert.match(other.message, /: held by "web" for /)
    })

    test('the time is that of the current lease, also after a local hand-off', async (t) => {
      const locks = store.client(t)
      const key = store.key()
      let began
      const handOn = async () => {
        while (began === undefined) await locks.withLock(key, { wait: 60_000 }, () => {})
      }
      const all = [handOn(), handOn(), handOn(), handOn()]
      // The store knows the first lease of a client's turn. On a busy machine, turns are short.
      const turn = async () => Date.now() - ((await locks.inspect(key))?.fence ?? Infinity) / 1_000
      for (const end = now() + 5_000; (await turn()) < 100 && now() < end; ) await sleep(1)
      let done
      let fence
      const holdOn = (lease) => {
        began = now()
        fence = lease.fence
        return new Promise((resolve) => {
          done = resolve
        })
      }
      all.push(locks.withLock(key, { wait: 60_000 }, holdOn))
      await until('the last section', () => began)
      const error = await named(() => locks.acquire(key, { wait: 200 }))
      // A fence is the wall clock's time of the grant, in µs.
      const most = Date.now() + 1 - fence / 1_000
      assert.ok(error.heldFor >= 200 - 10 && error.heldFor <= most, `${error.heldFor} of ${most} ms`)
      // One of the four callers may have ended just before.
      assert.ok(error.waiters === 3 || error.waiters === 4, `${error.waiters} wait`)
      t.diagnostic(`held for ${error.heldFor} ms, the client's turn ${(await turn()).toFixed()} ms`)
      done()
      await Promise.all(all)
    })

    test('the error of several keys names the key that is held', async (t) => {
      const [a, b] = [store.client(t, { name: 'web-1' }), store.client(t)]
      const keys = [store.key(), store.key(), store.key()].sort()
      await a.acquire(keys[1])
      const error = await named(() => b.acquire(keys, { wait: 300 }))
      assert.match(
        error.message,
        message(`could not acquire 3 keys within 300 ms: "${keys[1]}" is held by "web-1" for …${LONGER}`),
      )
      assert.deepEqual([error.key, error.holder, error.waiters], [keys[1], 'web-1', 0])
    })

    test('the error of several keys also names the holder if the wait ends before the last key is requested', async (t) => {
      const [a, b] = [store.client(t, { name: 'web-1' }), store.client(t)]
      const keys = [store.key(), store.key()].sort()
      await a.acquire(keys[1])
      const error = await named(async () => {
        const first = await a.acquire(keys[0])
        const call = b.acquire(keys, { wait: 200 })
        await until('a waiter for the first key', async () => (await a.inspect(keys[0])).waiters.length === 1)
        first.release()
        await new Promise(setImmediate)
        // The thread gets the grant when it is free again.
        for (const end = now() + 400; now() < end; );
        return call
      })
      assert.match(
        error.message,
        message(`could not acquire 2 keys within 200 ms: "${keys[1]}" is held by "web-1" for …${LONGER}`),
      )
    })

    test('with retry, the error after the last try also names the holder, for one key and for several', async (t) => {
      const [a, b] = [store.client(t, { name: 'web-1' }), store.client(t)]
      const keys = [store.key(), store.key()].sort()
      await a.acquire(keys[1])
      const retry = { retries: 2, minDelay: 5 }
      const one = await named(() => b.acquire(keys[1], { retry }))
      assert.match(
        one.message,
        message(`could not acquire "${keys[1]}" in 3 tries: held by "web-1" for …${MORE_RETRIES}`),
      )
      const both = await named(() => b.acquire(keys, { retry }))
      assert.match(
        both.message,
        message(`could not acquire 2 keys in 3 tries: "${keys[1]}" is held by "web-1" for …${MORE_RETRIES}`),
      )
      for (const error of [one, both]) {
        assert.deepEqual([error.key, error.holder, error.waiters], [keys[1], 'web-1', 0])
        assert.ok(error.heldFor >= 0 && error.heldFor < 60_000, `${error.heldFor} ms`)
      }
    })

    test('the error of a semaphore names the first three holders, and counts the other leases', async (t) => {
      const clients = Array.from({ length: 5 }, (_, i) => store.client(t, { name: `web-${i + 1}` }))
      const key = store.key()
      const [one, two, three, four, five] = clients.map((client) => client.semaphore(key, 7))
      const began = now()
      for (const semaphore of [one, two, three, four, five, two, two]) await semaphore.acquire()
      await sleep(20)
      const error = await named(() => two.acquire({ wait: 50 }))
      const names = '"web-1" for …, this client ("web-2") 3 times for up to …, "web-3" for … and 2 more'
      assert.match(
        error.message,
        message(`could not acquire "${key}" within 50 ms: held by ${names}${OWN}set a longer wait`),
      )
      assert.deepEqual([error.holder, error.waiters], ['web-1', 0])
      assert.ok(error.heldFor >= 68 && error.heldFor <= now() - began + 2, `${error.heldFor} ms`)
      const waiting = three.acquire({ wait: 60_000 })
      await until('web-3 to wait', async () => (await clients[0].inspect(key)).waiters.length === 1)
      assert.equal((await named(() => two.acquire({ wait: 50 }))).waiters, 1)
      await clients[0].forceRelease(key)
      await waiting
    })

    test('the error of a writer names the readers, and that of a reader names the writer', async (t) => {
      const clients = ['web-1', 'web-2', 'web-3'].map((name) => store.client(t, { name }))
      const key = store.key()
      const [one, two, three] = clients.map((client) => client.readWriteLock(key))
      const readers = [await one.read.acquire(), await two.read.acquire()]
      const ofWriter = await named(() => three.write.acquire({ wait: 300 }))
      assert.match(
        ofWriter.message,
        message(`could not acquire "${key}" within 300 ms: held by "web-1" for …, "web-2" for …${LONGER}`),
      )
      assert.equal(ofWriter.holder, 'web-1')
      for (const lease of readers) await lease.release()
      const writer = await three.write.acquire()
      const ofReader = await named(() => one.read.acquire({ wait: 300 }))
      assert.match(
        ofReader.message,
        message(`could not acquire "${key}" within 300 ms: held by "web-3" for …${LONGER}`),
      )
      await writer.release()
    })

    test('waits for many locks that end together are rejected in their order', async (t) => {
      const [a, b] = [store.client(t, { name: 'web-1' }), store.client(t)]
      const keys = Array.from({ length: 100 }, () => store.key())
      await Promise.all(keys.map((key) => a.acquire(key, { ttl: 60_000 })))
      const order = []
      const calls = Array.from({ length: 400 }, async (_, i) => {
        const { holder } = await timeout(b.acquire(keys[(i * 37) % 100], { wait: 300 + i }))
        order.push(i)
        return holder
      })
      const holders = await Promise.all(calls)
      assert.deepEqual(order, [...order.keys()])
      // On a slow machine, the store may not answer for all of them in time.
      assert.ok(holders.includes('web-1'))
      assert.ok(holders.every((holder) => holder === undefined || holder === 'web-1'))
    })

    test('the error of a call without a wait says only that the lock is held', async (t) => {
      const [a, b] = ['web-1', 'web-2'].map((name) => store.client(t, { name }))
      const key = store.key()
      await a.acquire(key)
      const held = `"${key}" is already held; inspect() shows the holder`
      const errors = [
        [b.acquire(key, { wait: 0 }), `could not acquire "${key}" at once: already held; inspect() shows the holder`],
        [
          b.acquire(key, { retry: { retries: 0 } }),
          `could not acquire "${key}" in 1 try: already held; inspect() shows the holder`,
        ],
        [b.acquire([key, `${key}:2`], { wait: 0 }), `could not acquire 2 keys at once: ${held}`],
      ]
      for (const [call, words] of errors) {
        const error = await timeout(call)
        assert.equal(error.message, words)
        assert.deepEqual(Object.keys(error), ['code', 'key'])
      }
      // The client knows its own leases without the store.
      const own = await timeout(a.acquire(key, { wait: 0 }))
      assert.equal(
        own.message,
        `could not acquire "${key}" at once: held by this client ("web-1")${OWN}set a longer wait`,
      )
      assert.equal(own.holder, 'web-1')
    })
  },
  allStoreNames,
)
