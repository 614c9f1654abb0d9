// leasehold/express around a handler: the lock is held until the work is over, even without a
// client.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { until, within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, free, open, serve } from '../support/http-servers.mjs'

const KEY = 'key'
const options = { key: () => KEY }

for (const [name, listener] of Object.entries(frameworks)) {
  describe(`lockRequest around a handler in ${name}`, { timeout: 60_000 }, () => {
    const start = (t, locks, handler) => serve(t, listener(lockRequest(locks, options, handler)))

    test('the lock is free when the response is finished', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, async ({ lease }, response) => response.end(String(lease.isHeld)))
      assert.equal(await (await fetch(url)).text(), 'true')
      await free(locks, KEY)
    })

    test('if the client leaves during the work, the lock is held until the work is over', async (t) => {
      const locks = open(t)
      const begun = gate()
      const closed = gate()
      const work = gate()
      const url = await start(t, locks, async ({ lease }, response) => {
        response.once('close', closed.pass)
        begun.pass(lease)
        await work.passed
      })
      const client = new AbortController()
      const response = fetch(url, { signal: client.signal })
      const lease = await within('the handler', begun.passed)
      client.abort()
      await assert.rejects(response, { name: 'AbortError' })
      await within('the connection to close', closed.passed)
      assert.equal(await locks.tryAcquire(KEY), null)
      assert.equal(lease.isHeld, true)
      work.pass()
      await free(locks, KEY)
    })

    test('if the response ends after the work, the lock is held until the response ends', async (t) => {
      const locks = open(t)
      let finish
      const url = await start(t, locks, async (_request, response) => {
        response.write('first')
        finish = () => response.end()
      })
      const response = await fetch(url)
      assert.equal(await locks.tryAcquire(KEY), null)
      finish()
      await response.text()
      await free(locks, KEY)
    })

    test('an error of the handler is passed on', async (t) => {
      const locks = open(t)
      const fail = () => {
        throw new Error('mine')
      }
      for (const handler of [fail, async () => fail()]) {
        const response = await fetch(await start(t, locks, handler))
        assert.deepEqual([response.status, response.headers.get('x-error')], [500, 'mine'])
        await free(locks, KEY)
      }
    })

    test('without a key, the handler runs without a lock', async (t) => {
      const locks = open(t)
      const handler = ({ lease }, response) => response.end(String(lease))
      const url = await serve(t, listener(lockRequest(locks, { key: () => null, optional: true }, handler)))
      assert.equal(await (await fetch(url)).text(), 'undefined')
      assert.equal(locks.stats().acquired, 0)
    })

    test('if the lease is lost, the error of the handler is passed on', async (t) => {
      const locks = open(t)
      const handler = async ({ lease }) => {
        await new Promise((resolve) => lease.signal.addEventListener('abort', resolve))
        lease.assertHeld()
      }
      const around = lockRequest(locks, { ...options, ttl: 100, maxHold: 100 }, handler)
      const response = await fetch(await serve(t, listener(around)))
      assert.deepEqual([response.status, response.headers.get('x-error')], [500, 'ERR_LOCK_LOST'])
    })
  })
}

describe('lockRequest around a handler', () => {
  test('without `next`, lockRequest returns a listener of node:http', async (t) => {
    const locks = open(t, { wait: 0 })
    const url = await serve(
      t,
      lockRequest(locks, options, ({ lease }, response) => response.end(lease.key)),
    )
    assert.equal(await (await fetch(url)).text(), KEY)
    await free(locks, KEY)
    await locks.acquire(KEY)
    assert.equal((await fetch(url)).status, 423)
  })

  test('without `next`, errors reject, and the listener of docs/servers.md answers them', async (t) => {
    const locks = open(t)
    const keyOf = ({ url }) => {
      if (url === '/no-key') throw new Error('no key')
      return url
    }
    const around = lockRequest(locks, { key: keyOf }, ({ url }, response) => {
      if (url === '/begun') response.write('half')
      throw new Error('mine')
    })
    const errors = []
    const url = await serve(t, (request, response) => {
      around(request, response).catch((error) => {
        errors.push(error.code ?? error.message)
        if (response.headersSent) response.destroy()
        else response.writeHead(500).end()
      })
    })
    assert.equal((await fetch(url)).status, 500)
    assert.equal((await fetch(new URL('/no-key', url))).status, 500)
    await assert.rejects(async () => (await fetch(new URL('/begun', url))).text())
    assert.deepEqual(errors, ['mine', 'no key', 'mine'])
    await until('all locks to be free', async () => (await locks.list()).locks.length === 0)
  })
})
