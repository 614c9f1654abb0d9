// leasehold/express and leasehold/remix on a real Redis that is killed and started again.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { sleep, timed, until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, open, serve } from '../support/http-servers.mjs'
import { startRedis } from '../support/servers.mjs'

const KEY = 'key'

describe('lockRequest on Redis', { timeout: 60_000 }, () => {
  test('two servers on one Redis exclude each other, answer 503 during its outage, and serve after it', async (t) => {
    const redis = await startRedis(t)
    let busy = 0
    let most = 0
    const work = async (_request, response) => {
      most = Math.max(most, ++busy)
      await sleep(5)
      busy--
      response.end()
    }
    const urls = await Promise.all(
      ['anna', 'ben'].map((name) => {
        const locks = open(t, { store: redis.url(), name })
        return serve(
          t,
          frameworks['Express 5'](lockRequest(locks, { key: () => KEY, wait: 5_000, failFast: false }), work),
        )
      }),
    )
    const ask = async (url) => (await fetch(url)).status
    const all = () => Promise.all(Array.from({ length: 10 }, (_, i) => ask(urls[i % 2])))
    assert.deepEqual(await all(), Array(10).fill(200))
    assert.equal(most, 1)

    await redis.kill()
    const locks = open(t, { store: redis.url(), name: 'cleo' })
    const short = await serve(t, frameworks['Express 5'](lockRequest(locks, { key: () => KEY, wait: 100 }), work))
    const response = await fetch(short)
    assert.deepEqual([response.status, response.headers.get('retry-after')], [503, '5'])

    // Requests with a long wait are served when the server is back.
    const waiting = all()
    await redis.start()
    assert.deepEqual(await waiting, Array(10).fill(200))
    assert.equal(most, 1)
  })

  test('if the store is silent when the wait ends, the 423 is late by at most 250 ms', async (t) => {
    const redis = await startRedis(t)
    const locks = open(t, { store: redis.url(), storeTimeout: 10_000 })
    const handler = lockRequest(locks, { key: () => KEY, wait: 300 }, () => {})
    const url = await serve(t, frameworks['Express 5'](handler))
    await locks.acquire(KEY, { ttl: 60_000 })
    const response = fetch(url)
    await until('the request to wait', async () => (await locks.inspect(KEY)).waiting === 1)
    redis.freeze()
    atEnd(t, () => redis.thaw())
    const { ms, value } = await timed(() => within('the answer', response, 9_000))
    assert.deepEqual([value.status, value.headers.get('retry-after')], [423, '1'])
    assert.ok(ms < 2_500, `${ms} ms`)
  })

  /** Functions that serve requests under KEY with `work`. Each returns the URL. */
  const servers = {
    lockRequest: (t, locks, options, work) =>
      serve(t, frameworks['Express 5'](lockRequest(locks, { key: () => KEY, ...options }), work)),
    withRequestLock(t, locks, options, work) {
      const handler = withRequestLock(
        locks,
        { key: () => KEY, ...options },
        () => new Promise((end) => work(null, { end })),
      )
      return serve(t, async (_request, response) => {
        const answer = await handler(new Request('http://host/'))
        response.writeHead(answer?.status ?? 200, Object.fromEntries(answer?.headers ?? []))
        response.end()
      })
    },
  }

  for (const [name, start] of Object.entries(servers)) {
    test(`${name}: while the breaker is open, requests are answered 503 at once, and served when the server is back`, async (t) => {
      // The server keeps its data, so the request that works keeps its lease.
      const redis = await startRedis(t, { keep: true })
      const locks = open(t, { store: redis.url(), storeTimeout: 500 })
      const work = gate()
      const url = await start(t, locks, { wait: 30_000 }, async (_request, response) => {
        await work.passed
        response.end()
      })
      const ask = async () => {
        const { status, headers } = await fetch(url)
        return { status, after: headers.get('retry-after') }
      }
      const [working, waiting] = [ask(), ask()]
      await until('a request to wait', () => locks.stats().waiting === 1)

      const opened = once(locks, 'breaker')
      await redis.kill()
      // A waiting request polls the server, so the client notices that the server is down.
      const [{ state }] = await within('the breaker to open', opened)
      assert.equal(state, 'open')
      assert.deepEqual(await within('the waiting request', waiting, 1_000), { status: 503, after: '5' })
      const times = []
      for (let i = 0; i < 5; i++) {
        const { ms, value } = await timed(ask)
        assert.deepEqual(value, { status: 503, after: '5' })
        times.push(ms)
      }
      // A busy machine may delay some of them.
      assert.ok(Math.min(...times) < 100 && Math.max(...times) < 2_000, `${times} ms`)
      t.diagnostic(`answered after ${times.map((ms) => ms.toFixed(1)).join(', ')} ms`)

      const back = once(locks, 'breaker')
      await redis.start()
      await within('the breaker to close', back)
      work.pass()
      assert.equal((await within('a request', ask(), 5_000)).status, 200)
      await working
    })

    test(`${name}: with failFast: false, a request waits through an outage`, async (t) => {
      const redis = await startRedis(t)
      const locks = open(t, { store: redis.url(), storeTimeout: 500, failFast: true })
      const url = await start(t, locks, { wait: 30_000, failFast: false }, (_request, response) => response.end())
      await locks.ready()
      await redis.kill()
      const opened = once(locks, 'breaker')
      const waiting = fetch(url)
      await within('the breaker to open', opened)
      assert.equal(await Promise.race([waiting.then(({ status }) => status), sleep(500)]), undefined)
      await redis.start()
      assert.equal((await within('the request', waiting, 10_000)).status, 200)
    })
  }

  test('a lock of another library without expiry is answered with 423 and a Retry-After of a minute', async (t) => {
    const redis = await startRedis(t)
    await redis.ask('SET', `lock:${KEY}`, 'theirs')
    const locks = open(t, { store: redis.url(), wait: 20 })
    // On a busy machine, the first connection takes longer than the wait.
    await locks.ready()
    for (const start of Object.values(servers)) {
      const { status, headers } = await fetch(
        await start(t, locks, {}, () => assert.fail('the handler ran without the lock')),
      )
      assert.deepEqual([status, headers.get('retry-after')], [423, '60'])
    }
  })
})
