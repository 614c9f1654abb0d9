// The keys of lockRequest() and withRequestLock() often come from the request. A visitor can leave
// a key out, repeat it, nest it, or make it long.

import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { withRequestLock } from 'leasehold/remix'
import { frameworks, open, serve } from '../support/http-servers.mjs'

// Keep the warnings of invalid keys out of the output: key-warnings.test.mjs is about them.
before(() => process.removeAllListeners('warning'))

const SECRET = 'hunter2'
/** Returns the key of a request as a query parser with arrays and objects reads it. */
const parse = (url) => {
  const given = new URL(url.replace(/^\/+/, '/'), 'http://host').searchParams
  if (given.has('key[a]')) return { a: given.get('key[a]') }
  if (given.has('many')) return Array.from({ length: Number(given.get('many')) }, (_, i) => `key ${i}`)
  if (given.has('long')) return SECRET.repeat(Number(given.get('long')))
  if (given.has('none')) return null
  const all = given.getAll('key')
  return all.length > 1 ? all : all[0]
}

/** Requests that the server answers with 400 by default. */
const INVALID = [
  '/',
  '/?none',
  '/?key=',
  '/?key=a&key=b',
  '/?key[a]=b',
  '/?key=a%00b',
  '/?long=200',
  '/?many=1',
  '/?many=2',
]

async function assertProblem(response) {
  assert.equal(response.status, 400)
  assert.equal(response.headers.get('content-type'), 'application/problem+json')
  assert.equal(response.headers.get('cache-control'), 'no-store')
  assert.equal(response.headers.get('retry-after'), null)
  const text = await response.text()
  assert.doesNotMatch(text, /hunter2|maxKeys|optional|argument/)
  const { title, status } = JSON.parse(text)
  assert.deepEqual([title, status], ['Bad Request', 400])
}

/** Functions that start a server with these options. The server responds with the locked keys. */
const servers = {
  ...Object.fromEntries(
    Object.entries(frameworks).map(([name, listener]) => [
      name,
      (t, locks, options) => {
        const answer = ({ lease, leases }, response) => response.end(JSON.stringify(leases?.keys ?? lease?.key ?? null))
        return serve(t, listener(lockRequest(locks, { key: ({ url }) => parse(url), ...options }), answer))
      },
    ]),
  ),
  'node:http, with a handler': async (t, locks, options) => {
    const handler = ({ lease, leases }, response) => response.end(JSON.stringify(leases?.keys ?? lease?.key ?? null))
    return serve(t, lockRequest(locks, { key: ({ url }) => parse(url), ...options }, handler))
  },
}

for (const [name, start] of Object.entries(servers)) {
  describe(`keys of lockRequest in ${name}`, { timeout: 60_000 }, () => {
    test('a request without a valid key is answered with 400, and no handler runs under a lock', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, {})
      for (const query of INVALID) {
        const response = await fetch(url + query)
        await assertProblem(response).catch((error) => assert.fail(`${query}: ${error.message}`))
      }
      assert.equal(locks.stats().acquired, 0)
      assert.equal(await (await fetch(`${url}/?key=a`)).json(), 'a')
    })

    test('a key that names a side key of another lock is answered with 400', async (t) => {
      const url = await start(t, open(t, { prefix: '' }), {})
      await assertProblem(await fetch(`${url}/?key=${encodeURIComponent('{a}:fence')}`))
      assert.equal(await (await fetch(`${url}/?key=${encodeURIComponent('{a}')}`)).json(), '{a}')
    })

    test('a key that names an id of once() is answered with 400', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, {})
      await assertProblem(await fetch(`${url}/?key=${encodeURIComponent('5@once:mail')}`))
      const { ran } = await locks.once('5', 'mail', () => {})
      assert.equal(ran, true)
    })

    test('a request may have up to maxKeys keys', async (t) => {
      const locks = open(t)
      const url = await start(t, locks, { maxKeys: 3 })
      assert.deepEqual(await (await fetch(`${url}/?key=b&key=a`)).json(), ['a', 'b'])
      assert.deepEqual(await (await fetch(`${url}/?many=3`)).json(), ['key 0', 'key 1', 'key 2'])
      for (const query of ['/?many=4', '/?many=0', '/?key=a&key=', '/?key=a&key=a&key=a&key=a']) {
        await assertProblem(await fetch(url + query))
      }
    })

    test('with `optional`, a request without a key needs no lock', async (t) => {
      const url = await start(t, open(t), { optional: true })
      for (const query of ['/', '/?none']) assert.equal(await (await fetch(url + query)).json(), null)
      for (const query of INVALID.slice(2)) await assertProblem(await fetch(url + query))
    })

    test('onInvalid gets the error, and may answer in its own way', async (t) => {
      const refusals = []
      const onInvalid = ({ status, error }, _request, response) => {
        refusals.push([status, error.code])
        response.statusCode = 422
        response.end('own')
      }
      const url = await start(t, open(t), { onInvalid })
      const response = await fetch(`${url}/?key=`)
      assert.deepEqual([response.status, await response.text()], [422, 'own'])
      await fetch(`${url}/?long=200`)
      assert.deepEqual(refusals, [
        [400, 'ERR_INVALID_ARG_VALUE'],
        [400, 'ERR_OUT_OF_RANGE'],
      ])
    })
  })
}

test('withRequestLock refuses a key that names a side key of another lock', async (t) => {
  const handle = withRequestLock(
    open(t, { prefix: '' }),
    { key: ({ url }) => parse(url) },
    () => new Response('served'),
  )
  await assertProblem(await handle(new Request(`http://host/?key=${encodeURIComponent('{order:5}:queue')}`)))
  assert.equal(await (await handle(new Request('http://host/?key=order'))).text(), 'served')
})

test('withRequestLock checks keys like lockRequest', async (t) => {
  const locks = open(t)
  const wrap = (options) =>
    withRequestLock(locks, { key: ({ url }) => parse(url), ...options }, (lease) =>
      Response.json(lease?.keys ?? lease?.key ?? null),
    )
  const ask = (handle, query) => handle(new Request(`http://host${query}`))
  for (const query of INVALID) await assertProblem(await ask(wrap({}), query))
  assert.deepEqual(await (await ask(wrap({ maxKeys: 2 }), '/?key=b&key=a')).json(), ['a', 'b'])
  await assertProblem(await ask(wrap({ maxKeys: 2 }), '/?many=3'))
  assert.equal(await (await ask(wrap({ optional: true }), '/')).json(), null)
  const own = await ask(wrap({ onInvalid: ({ error }) => new Response(error.code, { status: 422 }) }), '/?key=')
  assert.deepEqual([own.status, await own.text()], [422, 'ERR_INVALID_ARG_VALUE'])
})

test('bad options are refused when the middleware is made', (t) => {
  const locks = open(t)
  const key = () => 'k'
  const range = { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' }
  for (const make of [lockRequest, (given, options) => withRequestLock(given, options, () => {})]) {
    for (const maxKeys of [0, 1.5, 1_001]) assert.throws(() => make(locks, { key, maxKeys }), range)
    const type = { name: 'TypeError', code: 'ERR_INVALID_ARG_TYPE' }
    for (const options of [{ maxKeys: '2' }, { optional: 'yes' }, { onInvalid: 5 }]) {
      assert.throws(() => make(locks, { key, ...options }), type)
    }
    const value = { name: 'TypeError', code: 'ERR_INVALID_ARG_VALUE' }
    assert.throws(() => make(locks, { key, until: 'never' }), value)
  }
})

/** Returns an object that looks like a client of ioredis. */
const ioredis = () =>
  Object.assign(Object.create({ sendCommand() {} }), { status: 'ready', options: { host: 'h', password: 'secret' } })

test('a missing lock client is an error that says what to pass', () => {
  const key = () => 'k'
  for (const [name, make] of [
    ['lockRequest', lockRequest],
    ['withRequestLock', (...given) => withRequestLock(...given, () => {})],
  ]) {
    for (const [given, received] of [
      [[{ key }], 'options: the client comes before them'],
      [[undefined, { key }], 'undefined'],
      [['redis://:secret@host', { key }], 'type string'],
      [[ioredis(), { key }], 'a client of ioredis'],
    ]) {
      assert.throws(() => make(...given), {
        code: 'ERR_INVALID_ARG_TYPE',
        message:
          `${name}(): The "locks" argument must be the client that createLockClient() returns: ` +
          `${name}(locks, { key: … }, …). Received ${received}`,
      })
    }
  }
})
