// leasehold/express as a middleware in Express 5, Express 4 and node:http: which requests get a
// lock, and for how long.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { sleep, until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, free, open, serve } from '../support/http-servers.mjs'
import { lost } from '../support/leases.mjs'
import { freePort } from '../support/ports.mjs'

const KEY = 'account:secret'

for (const [name, listener] of Object.entries(frameworks)) {
  describe(`lockRequest, a middleware in ${name}`, { timeout: 60_000 }, () => {
    /** Starts a server whose requests need KEY, or the keys that `options` return. */
    const start = (t, locks, handler, options) =>
      serve(t, listener(lockRequest(locks, { key: () => KEY, ...options }), handler))

    test('requests run one at a time, each with its lease and a larger fence', async (t) => {
      const locks = open(t)
      const events = []
      const url = await start(t, locks, async ({ lease }, response) => {
        events.push(lease)
        await sleep(5)
        events.push(lease)
        response.end(`${lease.key} ${lease.isHeld}`)
      })
      const answers = await Promise.all(Array.from({ length: 12 }, async () => (await fetch(url)).text()))
      assert.deepEqual(answers, Array(12).fill(`${KEY} true`))
      const fences = events.map(({ fence }) => fence)
      // Each request begins and ends before the next one, in the order of their fences.
      assert.deepEqual(
        fences,
        fences.toSorted((a, b) => a - b),
      )
      assert.equal(new Set(fences).size, 12)
      await free(locks, KEY)
    })

    test('requests with the same key exclude each other, and a request without a key needs no lock', async (t) => {
      const locks = open(t, { wait: 0 })
      const key = async ({ url }) => new URL(url, 'http://host').searchParams.getAll('key')
      const keys = async (request) => {
        const given = await key(request)
        return given.length > 1 ? given : given[0]
      }
      const answer = ({ lease, leases }, response) => response.end(JSON.stringify(leases?.keys ?? lease?.key ?? null))
      const url = await start(t, locks, answer, { key: keys, maxKeys: 2, optional: true })
      await locks.acquire('taken')
      const ask = async (query) => {
        const response = await fetch(url + query)
        return response.ok ? response.json() : response.status
      }
      assert.equal(await ask(''), null)
      assert.equal(await ask('?key=free'), 'free')
      assert.equal(await ask('?key=taken'), 423)
      assert.deepEqual(await ask('?key=b&key=a'), ['a', 'b'])
      assert.equal(await ask('?key=free&key=taken'), 423)
      await free(locks, 'free')
    })

    test('a busy lock is answered with 423, Retry-After and a problem without the key', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, () => assert.fail('the handler ran without the lock'), { wait: 20 })
      await locks.acquire(KEY)
      const response = await fetch(url)
      assert.equal(response.status, 423)
      assert.equal(response.headers.get('retry-after'), '1')
      assert.equal(response.headers.get('content-type'), 'application/problem+json')
      assert.equal(response.headers.get('cache-control'), 'no-store')
      const text = await response.text()
      assert.doesNotMatch(text, /secret/, 'the answer shows the key')
      const { title, status, detail } = JSON.parse(text)
      assert.deepEqual([title, status], ['Locked', 423])
      assert.match(detail, /in 1 s/)
    })

    test('an outage and a closed client are answered with 503, without details of the store', async (t) => {
      const unreachable = () => freePort().then((port) => `redis://:hush@127.0.0.1:${port}`)
      const one = open(t, { store: await unreachable(), wait: 50 })
      const quorum = open(t, { store: await Promise.all([unreachable(), unreachable(), unreachable()]), wait: 50 })
      const closed = open(t)
      await closed.close()
      for (const [locks, seconds] of [
        [one, '5'],
        [quorum, '5'],
        [closed, '1'],
      ]) {
        const url = await start(t, locks, () => assert.fail('the handler ran without the lock'))
        const response = await fetch(url)
        assert.equal(response.status, 503)
        assert.equal(response.headers.get('retry-after'), seconds)
        const text = await response.text()
        assert.doesNotMatch(text, /hush|127\.0\.0\.1|secret/)
        assert.equal(JSON.parse(text).title, 'Service Unavailable')
      }
    })

    test('onBusy and onUnavailable get the refusal, and Retry-After is already set', async (t) => {
      const busy = open(t, { wait: 0 })
      await busy.acquire(KEY)
      const down = open(t, { store: `redis://127.0.0.1:${await freePort()}`, wait: 50 })
      const own = ({ status, keys, error }, _request, response) => {
        response.statusCode = 418
        response.end(`${status} ${keys} ${error.code}`)
      }
      const never = () => assert.fail('the handler ran without the lock')
      const ask = async (locks, options) => {
        const response = await fetch(await start(t, locks, never, options))
        assert.equal(response.status, 418)
        assert.match(response.headers.get('retry-after'), /^\d+$/)
        return response.text()
      }
      assert.equal(await ask(busy, { onBusy: own }), `423 ${KEY} ERR_LOCK_TIMEOUT`)
      assert.equal(await ask(down, { onUnavailable: own }), `503 ${KEY} ERR_STORE_UNAVAILABLE`)

      const pass = ({ error }, _request, _response, next) => next(error)
      const passed = await fetch(await start(t, busy, never, { onBusy: pass }))
      assert.deepEqual([passed.status, passed.headers.get('x-error')], [500, 'ERR_LOCK_TIMEOUT'])
      assert.equal(passed.headers.get('x-status-found'), '423')
    })

    test('if onBusy or onUnavailable fails, its error goes on, and the response has no refusal', async (t) => {
      const busy = open(t, { wait: 0 })
      await busy.acquire(KEY)
      const down = open(t, { store: `redis://127.0.0.1:${await freePort()}`, wait: 50 })
      const never = () => assert.fail('the handler ran without the lock')
      const throws = () => {
        throw new Error('a mistake')
      }
      const rejects = async () => throws()
      for (const [locks, options] of [
        [busy, { onBusy: throws }],
        [busy, { onBusy: rejects }],
        [down, { onUnavailable: throws }],
      ]) {
        const refuse = lockRequest(locks, { key: () => KEY, ...options })
        const middleware = (request, response, next) => {
          response.setHeader('cache-control', 'private')
          return refuse(request, response, next)
        }
        const url = await serve(t, listener(middleware, never))
        const { headers } = await fetch(url)
        const names = ['x-error', 'x-status-found', 'retry-after', 'cache-control']
        const found = names.map((header) => headers.get(header))
        assert.deepEqual(found, ['a mistake', '200', null, 'private'])
      }
    })

    test('if the client leaves during the wait, the wait ends, and the handler does not run', async (t) => {
      const locks = open(t)
      let ran = 0
      const url = await start(t, locks, () => ran++)
      const holder = await locks.acquire(KEY)
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      await until('the request to wait', () => locks.stats().waiting === 1)
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await until('the wait to end', () => locks.stats().waiting === 0)
      assert.equal(locks.stats().aborted, 1)
      await holder.release()
      await free(locks, KEY)
      assert.deepEqual([ran, locks.stats().acquired], [0, 1])
    })

    test('if the client leaves during the key function, no lock is acquired', async (t) => {
      const locks = open(t)
      const called = gate()
      const answered = gate()
      const closed = gate()
      const served = []
      const handler = (request, response) => {
        served.push(request.url)
        response.end()
      }
      const url = await start(t, locks, handler, {
        async key(request) {
          if (request.url === '/next') return KEY
          request.socket.once('close', closed.pass)
          called.pass()
          await answered.passed
          return KEY
        },
      })
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      await called.passed
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await within('the connection to close', closed.passed)
      answered.pass()
      // If the first request had asked for the lock, it would be served before this one.
      await fetch(`${url}next`)
      assert.deepEqual(served, ['/next'])
      assert.equal(locks.stats().acquired, 1)
    })

    test('if the client leaves during the work, the lock is free, and the lease is not held', async (t) => {
      const locks = open(t)
      const begun = gate()
      const url = await start(t, locks, ({ lease }) => begun.pass(lease))
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      const lease = await within('the handler', begun.passed)
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await free(locks, KEY)
      assert.equal(lease.isHeld, false)
      assert.throws(() => lease.assertHeld(), { code: 'ERR_LOCK_RELEASED' })
    })

    test('the lock is held while the response is written, and free when it is finished', async (t) => {
      const locks = open(t)
      const more = gate()
      const url = await start(t, locks, async (_request, response) => {
        response.write('first')
        await more.passed
        response.end('last')
      })
      const response = await fetch(url)
      const reader = response.body.getReader()
      await reader.read()
      assert.equal(await locks.tryAcquire(KEY), null)
      more.pass()
      while (!(await reader.read()).done);
      await free(locks, KEY)
    })

    test('an error of the handler goes to the error handler, and the lock is free', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, (_request, _response, next) => next(new Error('mine')))
      const response = await fetch(url)
      assert.deepEqual([response.status, response.headers.get('x-error')], [500, 'mine'])
      await free(locks, KEY)
    })

    test('an error of the key function goes on, and no lock is acquired', async (t) => {
      const locks = open(t)
      const fail = () => {
        throw new Error('mine')
      }
      for (const [key, error] of [
        [fail, 'mine'],
        [async () => fail(), 'mine'],
      ]) {
        const url = await start(t, locks, () => assert.fail('the handler ran without the lock'), { key })
        const response = await fetch(url)
        assert.deepEqual([response.status, response.headers.get('x-error')], [500, error])
      }
      assert.equal(locks.stats().acquired, 0)
    })

    test('whatever a function throws or returns, the request is not served without the lock, and is answered', async (t) => {
      const locks = open(t, { wait: 0 })
      await locks.acquire('busy')
      // Express takes falsy values for no error, and these words for its own.
      for (const thrown of [undefined, null, 0, '', false, 'route', 'router']) {
        const rejects = () => Promise.reject(thrown)
        for (const options of [{ key: rejects }, { key: () => 'busy', onBusy: rejects }]) {
          const url = await start(t, locks, () => assert.fail('the handler ran without the lock'), options)
          const response = await fetch(url)
          assert.equal(response.status, 500, `${String(thrown)}: ${Object.keys(options)}`)
          assert.match(response.headers.get('x-error'), /^what was thrown is not an Error/)
        }
        const handler = lockRequest(locks, { key: () => KEY }, rejects)
        const answer = await fetch(
          await serve(
            t,
            listener(handler, () => assert.fail('the next handler ran')),
          ),
        )
        assert.equal(answer.status, 500, String(thrown))
      }
      // No code would send a Response, so the request would hang.
      const remix = lockRequest(locks, { key: () => KEY }, async () => new Response('lost'))
      const hung = await fetch(
        await serve(
          t,
          listener(remix, () => assert.fail('the next handler ran')),
        ),
      )
      assert.deepEqual([hung.status, hung.headers.get('x-error')], [500, 'ERR_INVALID_ARG_VALUE'])
      await free(locks, KEY)
      // An application may throw objects that its error handler knows.
      const thrown = { status: 409, message: 'mine' }
      const url = await start(t, locks, () => assert.fail('the handler ran'), { key: () => Promise.reject(thrown) })
      assert.equal((await fetch(url)).headers.get('x-error'), 'mine')
    })

    test('if the lease is lost during the work, its signal aborts, and the handler answers', async (t) => {
      const locks = open(t)
      const losses = []
      locks.on('lost', (_lease, error) => losses.push(error))
      const handler = async ({ lease }, response) => {
        await within('the loss', once(lease.signal, 'abort'))
        response.end(lease.signal.reason.reason)
      }
      const url = await start(t, locks, handler, { maxHold: 100, ttl: 100 })
      assert.equal(await (await fetch(url)).text(), 'expired')
      assert.equal(losses.length, 1)
      assert.ok(lost('expired')(losses[0]))
    })
  })
}

describe('lockRequest', { timeout: 60_000 }, () => {
  test('bad arguments are refused when the middleware is made', (t) => {
    const locks = open(t)
    const key = () => KEY
    for (const [bad, code] of [
      [() => lockRequest('redis://localhost', { key }), 'ERR_INVALID_ARG_TYPE'],
      [() => lockRequest(locks), 'ERR_INVALID_ARG_TYPE'],
      [() => lockRequest(locks, {}), 'ERR_INVALID_ARG_TYPE'],
      [() => lockRequest(locks, { key: KEY }), 'ERR_INVALID_ARG_TYPE'],
      [() => lockRequest(locks, { key, onBusy: 423 }), 'ERR_INVALID_ARG_TYPE'],
      [() => lockRequest(locks, { key, timeout: 5 }), 'ERR_INVALID_ARG_VALUE'],
      [() => lockRequest(locks, { key, wait: -1 }), 'ERR_OUT_OF_RANGE'],
      [() => lockRequest(locks, { key, ttl: 100, maxHold: 50 }), 'ERR_OUT_OF_RANGE'],
      [() => lockRequest(locks, { key }, 'handler'), 'ERR_INVALID_ARG_TYPE'],
    ]) {
      assert.throws(bad, { code })
    }
  })
})

test('a framework that passes other arguments gets an error, and no rejection is left unhandled', async (t) => {
  const unhandled = []
  const listener = (error) => unhandled.push(error)
  process.on('unhandledRejection', listener)
  t.after(() => process.off('unhandledRejection', listener))
  for (const handler of [undefined, () => {}]) {
    const middleware = lockRequest(open(t), { key: () => KEY }, handler)
    // Koa calls a middleware with a context and the next middleware.
    const called = middleware({ request: {}, response: {} }, async () => {})
    await assert.rejects(called, {
      name: 'TypeError',
      code: 'ERR_INVALID_ARG_TYPE',
      message: /"response" .* node:http/,
    })
  }
  await new Promise(setImmediate)
  assert.deepEqual(unhandled, [])
})
