// leasehold/express as a middleware with `until: 'end'`: the lock is held until the handler has ended its response, whether or not
// the client is still there.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, free, open, serve } from '../support/http-servers.mjs'

const KEY = 'key'

for (const [name, listener] of Object.entries(frameworks)) {
  describe(`lockRequest until the end, in ${name}`, { timeout: 60_000 }, () => {
    const start = (t, locks, handler, options) =>
      serve(t, listener(lockRequest(locks, { key: () => KEY, until: 'end', ...options }), handler))

    /** Sends a request and goes away when the handler runs. Resolves with the lease when the connection is closed. */
    async function abandon(url, begun, closed) {
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      const lease = await within('the handler', begun.passed)
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await within('the connection to close', closed.passed)
      return lease
    }

    test('a client that goes away leaves the lock to the handler, until that ends its response', async (t) => {
      const locks = open(t)
      const [begun, closed, work] = [gate(), gate(), gate()]
      const url = await start(t, locks, async ({ lease }, response) => {
        response.once('close', closed.pass)
        begun.pass(lease)
        await work.passed
        response.end('nobody reads this')
      })
      const lease = await abandon(url, begun, closed)
      assert.equal(await locks.tryAcquire(KEY), null)
      assert.equal(lease.isHeld, true)
      work.pass()
      await free(locks, KEY)
    })

    test('an answer that is received frees the lock as ever', async (t) => {
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
      await within('close(), which waits for no section any more', locks.close({ drain: Infinity }))
    })

    test('another value is refused', (t) => {
      assert.throws(() => lockRequest(open(t), { key: () => KEY, until: 'body' }), /"until" option must be/)
    })
  })
}
