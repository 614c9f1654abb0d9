// leasehold/express as a middleware with `until: 'end'`: the lock is held until the handler has
// ended its response, whether or not the client is still connected.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { describe, test } from 'node:test'
import { createGzip } from 'node:zlib'
import { lockRequest } from 'leasehold/express'
import { timed, until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, free, open, pipeline, serve } from '../support/http-servers.mjs'

const KEY = 'key'
const SOON = 5_000
/** The holder notices a forced release at its next renewal, after a third of this time, in ms. */
const TTL = 1_500

/**
 * Compresses responses like the package `compression`: it stops writing to a response while the
 * response is full.
 */
function compress(_request, response, next) {
  const { write, end } = response
  const gzip = createGzip()
  gzip.on('data', (part) => write.call(response, part) || gzip.pause())
  gzip.on('end', () => end.call(response))
  response.on('drain', () => gzip.resume())
  response.write = (part) => gzip.write(part)
  response.end = (part) => gzip.end(part)
  next()
}

for (const [name, listener] of Object.entries(frameworks)) {
  describe(`lockRequest until the end, in ${name}`, { timeout: 60_000 }, () => {
    const start = (t, locks, handler, options) =>
      serve(t, listener(lockRequest(locks, { key: () => KEY, until: 'end', ...options }), handler))

    /**
     * Sends a request, and disconnects when the handler runs. Resolves with the lease when the
     * connection is closed.
     */
    async function abandon(url, begun, closed) {
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      const lease = await within('the handler', begun.passed)
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await within('the connection to close', closed.passed)
      return lease
    }

    test('if the client leaves, the lock is held until the handler ends its response', async (t) => {
      const locks = open(t)
      const [begun, closed, work] = [gate(), gate(), gate()]
      const url = await start(t, locks, async ({ lease }, response) => {
        response.once('close', closed.pass)
        begun.pass(lease)
        await work.passed
        response.end('never read')
      })
      const lease = await abandon(url, begun, closed)
      assert.equal(await locks.tryAcquire(KEY), null)
      assert.equal(lease.isHeld, true)
      work.pass()
      await free(locks, KEY)
    })

    test('a received response frees the lock', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, async ({ lease }, response) => response.end(String(lease.isHeld)))
      for (let i = 0; i < 3; i++) assert.equal(await (await fetch(url)).text(), 'true')
      await free(locks, KEY)
    })

    test('maxHold ends the lock of a handler that never ends its response', async (t) => {
      const locks = open(t)
      const [begun, closed] = [gate(), gate()]
      const options = { maxHold: 300, ttl: 300 }
      const handler = ({ lease }, response) => {
        response.once('close', closed.pass)
        begun.pass(lease)
      }
      const url = await start(t, locks, handler, options)
      await abandon(url, begun, closed)
      await free(locks, KEY)
      await within('close() without a section', locks.close({ drain: Infinity }))
    })

    for (const how of ['a forced release', 'maxHold']) {
      for (const form of ['middleware', 'handler']) {
        test(`if ${how} ends the lease while a ${form} works, its response is sent, and nothing rejects`, async (t) => {
          const locks = open(t)
          const [begun, work] = [gate(), gate()]
          const handler = async ({ lease }, response) => {
            begun.pass(lease)
            // Work that a handler passes to a callback goes on after its promise has settled.
            work.passed.then(() => response.end('answer of the handler'))
          }
          const options = {
            key: () => KEY,
            until: 'end',
            ttl: TTL,
            ...(how === 'maxHold' && { ttl: 200, maxHold: 200 }),
          }
          const locked = lockRequest(locks, options, form === 'handler' ? handler : undefined)
          let outcome
          const observed = (...args) => {
            const served = locked(...args)
            outcome = served.then(
              () => 'resolved',
              (error) => error.code,
            )
            return served
          }
          const url = await serve(t, listener(observed, form === 'handler' ? undefined : handler))
          const response = fetch(url)
          const lease = await within('the handler', begun.passed)
          if (how === 'maxHold') await until('the loss', () => lease.signal.aborted)
          else await locks.forceRelease(KEY)
          assert.equal(await within('the middleware', outcome, SOON), 'resolved')
          work.pass()
          const { status, headers } = await response
          assert.deepEqual([status, headers.get('x-error')], [200, null])
          assert.equal(await (await response).text(), 'answer of the handler')
        })
      }
    }

    test('if one of several keys is lost, the others are held until the handler ends its response', async (t) => {
      const locks = open(t)
      const [begun, work] = [gate(), gate()]
      const handler = async ({ leases }, response) => {
        begun.pass(leases)
        await work.passed
        response.end('done')
      }
      const url = await start(t, locks, handler, { key: () => ['a', 'b', 'c'], maxKeys: 3, ttl: TTL })
      const response = fetch(url)
      const leases = await within('the handler', begun.passed)
      await locks.forceRelease('a')
      await until('the loss', () => leases.signal.aborted)
      // If the loss caused a release, it would go to the store in the next turns, before this
      // request.
      await locks.inspect('b')
      assert.equal(await locks.tryAcquire('b'), null)
      assert.equal(await locks.tryAcquire('c'), null)
      work.pass()
      assert.equal(await (await response).text(), 'done')
      for (const key of ['b', 'c']) await free(locks, key)
    })

    test('if all of several keys are lost, close() does not wait', async (t) => {
      const locks = open(t)
      const begun = gate()
      const url = await start(t, locks, ({ leases }) => begun.pass(leases), {
        key: () => ['a', 'b'],
        maxKeys: 2,
        ttl: TTL,
      })
      fetch(url).catch(() => {})
      await within('the handler', begun.passed)
      for (const key of ['a', 'b']) await locks.forceRelease(key)
      await until('the section to end', () => locks.stats().held === 0)
      const { ms } = await timed(() => locks.close())
      assert.ok(ms < 2_500, `${ms} ms`)
    })

    test('a big response through another middleware frees the lock, even if its client left before', async (t) => {
      const locks = open(t)
      const [closed, sent] = [gate(), gate()]
      const locked = lockRequest(locks, { key: () => KEY, until: 'end' })
      const both = (request, response, next) =>
        compress(request, response, (error) => (error ? next(error) : locked(request, response, next)))
      const handler = (_request, response) => {
        response.once('close', closed.pass)
        response.end(randomBytes(8_000_000))
        sent.pass(response)
      }
      const client = pipeline(await serve(t, listener(both, handler)), ['/']).pause()
      const response = await within('the answer', sent.passed)
      await until('the connection to be full', () => response.writableNeedDrain, SOON)
      client.destroy()
      await within('the connection to close', closed.passed)
      await free(locks, KEY, SOON)
    })

    test('a handler that destroys its response has ended it', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, (_request, response) => {
        response.write('half')
        response.destroy()
      })
      await assert.rejects(async () => (await fetch(url)).text())
      await free(locks, KEY, SOON)
    })

    test('the wrapper of end() of a later middleware stays in place', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, (_request, response) => {
        const { end } = response
        response.end = (text) => end.call(response, `${text}!`)
        const around = response.end
        response.end('done')
        assert.equal(response.end, around)
      })
      assert.equal(await (await fetch(url)).text(), 'done!')
      await free(locks, KEY)
    })

    test('another value of `until` is refused', (t) => {
      assert.throws(() => lockRequest(open(t), { key: () => KEY, until: 'body' }), /"until" option must be/)
    })
  })
}
