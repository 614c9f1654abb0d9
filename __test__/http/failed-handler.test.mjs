// leasehold/express around a handler that fails: the lock is held until the error handler has
// answered the request.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { within } from '../support/clock.mjs'
import { gate } from '../support/gate.mjs'
import { errorHandled, free, open, serve } from '../support/http-servers.mjs'

const KEY = 'key'

const mine = async () => {
  throw new Error('mine')
}

for (const [name, listener] of Object.entries(errorHandled)) {
  for (const held of ['response', 'end']) {
    describe(`a handler that fails, until the ${held}, in ${name}`, { timeout: 60_000 }, () => {
      const start = (t, locks, handler, answer, options) =>
        serve(t, listener(lockRequest(locks, { key: () => KEY, until: held, ...options }, handler), answer))

      test('the lock is held until the error handler has answered', async (t) => {
        const locks = open(t)
        const [failed, work] = [gate(), gate()]
        const url = await start(t, locks, mine, async ({ lease }, response, error) => {
          failed.pass({ lease, error })
          await work.passed
          response.writeHead(500).end(error.message)
        })
        const answer = fetch(url)
        const { lease, error } = await within('the error handler', failed.passed)
        assert.equal(error.message, 'mine')
        assert.equal(lease.isHeld, true)
        assert.equal(await locks.tryAcquire(KEY), null)
        work.pass()
        const response = await answer
        assert.deepEqual([response.status, await response.text()], [500, 'mine'])
        await free(locks, KEY)
      })

      test('after the headers, the lock is free when the connection was cut off', async (t) => {
        const locks = open(t)
        const begin = async (_request, response) => {
          response.write('half')
          await mine()
        }
        // Express destroys the socket, and not the response.
        const url = await start(t, locks, begin, ({ socket }) => socket.destroy())
        await assert.rejects(async () => (await fetch(url)).text())
        await free(locks, KEY)
      })

      test('if the lease is lost, the error handler answers, and nothing rejects', async (t) => {
        const locks = open(t)
        const handler = async ({ lease }) => {
          await locks.forceRelease(KEY)
          await lease.renew()
        }
        const url = await start(t, locks, handler, (_request, response, error) =>
          response.writeHead(500, { 'x-error': error.code }).end(),
        )
        const response = await fetch(url)
        assert.deepEqual([response.status, response.headers.get('x-error')], [500, 'ERR_LOCK_LOST'])
        await free(locks, KEY)
      })

      test('if the client leaves before the error, the lock is free after the error handler', async (t) => {
        const locks = open(t)
        const [begun, closed, failing, asked, answering] = [gate(), gate(), gate(), gate(), gate()]
        const handler = async (_request, response) => {
          response.once('close', closed.pass)
          begun.pass()
          await failing.passed
          await mine()
        }
        const url = await start(t, locks, handler, async (_request, response) => {
          asked.pass()
          await answering.passed
          response.writeHead(500).end()
        })
        const client = new AbortController()
        const response = fetch(url, { signal: client.signal })
        await within('the handler', begun.passed)
        client.abort()
        await assert.rejects(response, { name: 'AbortError' })
        await within('the connection to close', closed.passed)
        assert.equal(await locks.tryAcquire(KEY), null)
        failing.pass()
        await within('the error handler', asked.passed)
        if (held === 'response') await free(locks, KEY)
        else assert.equal((await locks.inspect(KEY))?.leases.length, 1)
        answering.pass()
        await free(locks, KEY)
      })
    })
  }
}

test('if a handler fails after it has called next, the rejection is immediate, and the lock is held until the answer', async (t) => {
  const locks = open(t)
  const [passed, rejected] = [gate(), gate()]
  const around = lockRequest(locks, { key: () => KEY }, async (_request, _response, next) => {
    next()
    await mine()
  })
  const url = await serve(t, (request, response) => {
    around(request, response, () => passed.pass(response)).catch(rejected.pass)
  })
  const answer = fetch(url)
  const response = await within('the next handler', passed.passed)
  assert.equal((await within('the rejection', rejected.passed)).message, 'mine')
  assert.equal(await locks.tryAcquire(KEY), null)
  response.end()
  await answer
  await free(locks, KEY)
})
