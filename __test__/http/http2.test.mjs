// lockRequest behind an HTTP/2 server of Node.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, constants, createServer } from 'node:http2'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { free, open } from '../support/http-servers.mjs'

const KEY = 'key'

/** Starts a server, and ends it after the test. Returns a session of a client. */
async function startSession(t, listener) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const session = connect(`http://127.0.0.1:${server.address().port}`)
  atEnd(t, async () => {
    session.destroy()
    server.close()
    await once(server, 'close')
  })
  await once(session, 'connect')
  return session
}

/** Sends a request. Returns the status and the text of the response. */
async function ask(session, method) {
  const stream = session.request({ ':method': method, ':path': '/' })
  stream.end()
  const [headers] = await within(`the answer to ${method}`, once(stream, 'response'), 5_000)
  let text = ''
  for await (const part of stream.setEncoding('utf8')) text += part
  return [headers[':status'], text]
}

const answer = (request, response) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  response.end(request.method === 'HEAD' ? undefined : 'ok')
}

/** Functions that return a listener, one for each form of lockRequest(). */
const forms = {
  'the handler form': (locks, key) => lockRequest(locks, { key, optional: true }, answer),
  'middleware until the response': (locks, key) => {
    const middleware = lockRequest(locks, { key, optional: true })
    return (request, response) => middleware(request, response, () => answer(request, response))
  },
  "middleware with until: 'end'": (locks, key) => {
    const middleware = lockRequest(locks, { key, until: 'end', optional: true })
    return (request, response) => middleware(request, response, () => answer(request, response))
  },
}

for (const [name, form] of Object.entries(forms)) {
  describe(`HTTP/2: ${name}`, { timeout: 60_000 }, () => {
    for (const method of ['HEAD', 'GET']) {
      test(`${method} is answered, and the lock is free after that`, async (t) => {
        const locks = open(t)
        const keys = []
        const session = await startSession(
          t,
          form(locks, () => {
            keys.push(KEY)
            return KEY
          }),
        )
        for (let i = 0; i < 3; i++) assert.deepEqual(await ask(session, method), [200, method === 'HEAD' ? '' : 'ok'])
        assert.equal(keys.length, 3)
        await free(locks, KEY)
      })
    }

    test('HEAD without a key is answered', async (t) => {
      const session = await startSession(
        t,
        form(open(t), () => undefined),
      )
      assert.deepEqual(await ask(session, 'HEAD'), [200, ''])
    })
  })
}

test('the lock is free if the stream closes without an event', { timeout: 60_000 }, async (t) => {
  const locks = open(t)
  const streams = []
  const form = lockRequest(locks, { key: () => KEY })
  const session = await startSession(t, (request, response) =>
    form(request, response, () => {
      // Node leaves some streams in this state if a client resets many at once.
      response.stream.removeAllListeners()
      streams.push(response.stream)
    }),
  )
  const request = session.request({ ':path': '/' })
  request.on('error', () => {})
  await until('the lock to be held', async () => streams.length === 1 && (await locks.inspect(KEY)) !== null)
  request.close(constants.NGHTTP2_CANCEL)
  await until('the lock to be free', async () => (await locks.inspect(KEY)) === null, 5_000)
})
