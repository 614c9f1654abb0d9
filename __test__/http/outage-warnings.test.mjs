// A visitor gets 503 if the store can't be used, and learns nothing. The server learns the reason
// by a process warning.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { inspect } from 'node:util'
import { createLockClient } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { atEnd } from '../support/endings.mjs'
import { frameworks, open, serve } from '../support/http-servers.mjs'
import { startRedis } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'
import { warningsOf } from '../support/warnings.mjs'

const CODE = 'LEASEHOLD_STORE_UNAVAILABLE'
const skip = !storeNames.includes('redis')
const SECRET = 'hunter2'

/** Functions that return how to send a request to a middleware with these options. */
const middlewares = {
  lockRequest: async (t, locks, options) => {
    const listener = frameworks['node:http'](lockRequest(locks, options), (_request, response) => response.end())
    const url = await serve(t, listener)
    return () => fetch(url)
  },
  withRequestLock: async (_, locks, options) => {
    const handle = withRequestLock(locks, options, () => new Response('served'))
    return () => handle(new Request('http://host/'))
  },
}

for (const [name, start] of Object.entries(middlewares)) {
  test(`${name} warns once of a wrong password, and does not show it`, { skip }, async (t) => {
    const { port } = await startRedis(t, { password: 'right' })
    const locks = createLockClient(`redis://:${SECRET}@127.0.0.1:${port}`)
    atEnd(t, () => locks.close())
    const warnings = warningsOf(t, CODE)
    const send = await start(t, locks, { key: () => 'k', wait: 1_000 })
    for (let i = 0; i < 3; i++) assert.equal((await send()).status, 503)
    await setImmediate()
    assert.equal(warnings.length, 1)
    const [{ message, cause }] = warnings
    assert.match(
      message,
      new RegExp(`^${name}\\(\\) answered a request with 503\\. redis://127\\.0\\.0\\.1:${port} refused`),
    )
    assert.match(message, /WRONGPASS.*check user and password.*: set "onUnavailable" to get the error of each one$/)
    assert.doesNotMatch(message + cause.stack, /hunter2/)
  })

  test(`${name} warns once for each client, also if each request has its own middleware`, async (t) => {
    const warnings = warningsOf(t, CODE)
    for (let expected = 1; expected <= 2; expected++) {
      const down = createLockClient({ store: 'redis://127.0.0.1:1' })
      atEnd(t, () => down.close())
      for (let i = 0; i < 3; i++) {
        const send = await start(t, down, { key: () => 'k', wait: 200 })
        assert.equal((await send()).status, 503)
      }
      await setImmediate()
      assert.equal(warnings.length, expected)
    }
  })

  test(`${name} warns of an outage although a visitor's key met data of another program`, { skip }, async (t) => {
    const server = await startRedis(t)
    const command = await server.command()
    await command('ZADD', 'lock:board\u202e', '1', 'x')
    command.close()
    const locks = createLockClient({ store: server.url(), storeTimeout: 500 })
    atEnd(t, () => locks.close())
    const warnings = warningsOf(t, CODE)
    let key = 'board\u202e'
    const send = await start(t, locks, { key: () => key, wait: 1_000 })
    for (let i = 0; i < 2; i++) assert.equal((await send()).status, 503)
    await setImmediate()
    assert.equal(warnings.length, 1)
    assert.equal(warnings[0].cause.reason, 'wrongtype')
    assert.doesNotMatch(inspect(warnings[0]), /\u202e/, 'loggers print no character of the key')
    server.freeze()
    key = 'other'
    for (let i = 0; i < 2; i++) assert.equal((await send()).status, 503)
    await setImmediate()
    assert.equal(warnings.length, 2)
    server.thaw()
  })

  test(`${name} does not warn if onUnavailable is set, or the lock is held, or the client was closed`, async (t) => {
    const warnings = warningsOf(t, CODE)
    const down = createLockClient({ store: 'redis://127.0.0.1:1' })
    atEnd(t, () => down.close())
    const answer = (refusal, _request, response) => {
      if (response?.end) return response.end()
      return new Response(null, { status: refusal.status })
    }
    const own = await start(t, down, { key: () => 'k', wait: 200, onUnavailable: answer })
    assert.equal((await own()).status, 503)
    const locks = open(t)
    const lease = await locks.acquire('k')
    const send = await start(t, locks, { key: () => 'k', wait: 10 })
    assert.equal((await send()).status, 423)
    await lease.release()
    await locks.close()
    assert.equal((await send()).status, 503)
    await setImmediate()
    assert.deepEqual(warnings, [])
  })
}
