// A visitor gets 400 for a request without a valid key, and learns nothing. If the key function
// returns the wrong type, the server learns of it by a process warning.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { frameworks, open, serve } from '../support/http-servers.mjs'
import { warningsOf } from '../support/warnings.mjs'

const require = createRequire(import.meta.url)
const CODE = 'LEASEHOLD_INVALID_KEY'
const SECRET = 'hunter2'

/** Functions that return how to send a request to a middleware with these options. */
const middlewares = {
  lockRequest: async (t, options) => {
    const listener = frameworks['node:http'](lockRequest(open(t), options), (_request, response) => response.end())
    const url = await serve(t, listener)
    return () => fetch(url)
  },
  withRequestLock: async (t, options) => {
    const handle = withRequestLock(open(t), options, () => new Response('served'))
    return () => handle(new Request('http://host/'))
  },
}

const WRONG = [
  { key: 4711, says: /The "key" argument must be of type string\. Received type number/ },
  { key: undefined, says: /its key function returned undefined\. Set "optional" if/ },
  { key: null, says: /its key function returned null\. Set "optional" if/ },
  { key: { a: SECRET }, says: /must be of type string\. Received an instance of Object/ },
  { key: [SECRET, 'b'], says: /an array of keys, and only one is allowed\. Set "maxKeys"/ },
  { key: 4711, maxKeys: 2, says: /of type string, or an array of strings\. Received type number/ },
  { key: [SECRET, 4711], maxKeys: 2, says: /The "keys\[1\]" argument must be of type string\. Received type number/ },
]

for (const [name, start] of Object.entries(middlewares)) {
  for (const { key, maxKeys, says } of WRONG) {
    const what = JSON.stringify(key) ?? 'undefined'
    test(`${name} warns once of the key ${what}${maxKeys ? ` with maxKeys: ${maxKeys}` : ''}`, async (t) => {
      const warnings = warningsOf(t, CODE)
      const send = await start(t, { key: () => key, maxKeys })
      for (let i = 0; i < 3; i++) assert.equal((await send()).status, 400)
      await setImmediate()
      assert.equal(warnings.length, 1)
      const [{ message, cause, name: type }] = warnings
      assert.equal(type, 'LeaseholdWarning')
      assert.match(message, new RegExp(`^${name}\\(\\) answered a GET request with 400\\. The `))
      assert.match(message, says)
      assert.match(message, /: set "onInvalid" to get the error of each one$/)
      assert.doesNotMatch(message + cause.stack, /hunter2|4711/)
    })
  }

  test(`${name} warns for each middleware on its own`, async (t) => {
    const warnings = warningsOf(t, CODE)
    for (let i = 0; i < 2; i++) await (await start(t, { key: () => 4711 }))()
    await setImmediate()
    assert.equal(warnings.length, 2)
  })

  test(`${name} does not warn of a string that is no key, nor if onInvalid or optional is set`, async (t) => {
    const warnings = warningsOf(t, CODE)
    const invalid = { onInvalid: ({ error }, ...args) => answerTo(error, args) }
    for (const options of [
      { key: () => '' },
      { key: () => `${SECRET}\0` },
      { key: () => SECRET.repeat(200) },
      { key: () => [], maxKeys: 2 },
      { key: () => undefined, optional: true },
      { key: () => 4711, ...invalid },
    ]) {
      await (await start(t, options))()
    }
    await setImmediate()
    assert.deepEqual(warnings, [])
  })
}

/** Returns the message of the warning for a request to `path` of an Express application. */
async function warned(t, name, route, method, path) {
  const warnings = warningsOf(t, CODE)
  const { app, middleware } = appOf(t, name)
  app[method.toLowerCase()](route, middleware, (_request, response) => response.end())
  const url = await serve(t, app)
  assert.equal((await fetch(new URL(path, url), { method })).status, 400)
  await setImmediate()
  return warnings[0].message
}

const appOf = (t, name) => ({
  app: require(name)().disable('x-powered-by'),
  middleware: lockRequest(open(t), { key: () => 4711 }),
})

for (const name of ['express', 'express4']) {
  test(`the warning names the method and the route of ${name}, and nothing that the visitor sent`, async (t) => {
    const message = await warned(t, name, '/orders/:id', 'POST', `/orders/${SECRET}?token=${SECRET}`)
    assert.match(message, /^lockRequest\(\) answered a POST request to \/orders\/:id with 400\. The /)
    assert.doesNotMatch(message, /hunter2|token/)
  })

  test(`the warning names no route of ${name} that is a RegExp`, async (t) => {
    const message = await warned(t, name, /^.orders/, 'GET', `/orders/${SECRET}`)
    assert.match(message, /^lockRequest\(\) answered a GET request with 400\. The /)
    assert.doesNotMatch(message, /hunter2/)
  })
}

test('the warning names only methods of HTTP', async (t) => {
  const warnings = warningsOf(t, CODE)
  const handle = withRequestLock(open(t), { key: () => 4711 }, () => new Response('served'))
  await handle(new Request('http://host/', { method: SECRET }))
  await setImmediate()
  assert.match(warnings[0].message, /^withRequestLock\(\) answered a request with 400\. The /)
})

/** The answer of an application to both kinds of servers. */
function answerTo(error, [, response]) {
  if (response === undefined) return new Response(error.code, { status: 422 })
  response.statusCode = 422
  response.end(error.code)
}
