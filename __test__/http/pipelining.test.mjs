// leasehold/express and responses that never get a socket. Node gives a pipelined response its
// socket when the previous one is finished. It emits neither `finish` nor `close` for a response
// without a socket.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, IncomingMessage, ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { lockRequest } from 'leasehold/express'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'
import { frameworks, free, open, pipeline, serve } from '../support/http-servers.mjs'

const SOON = 5_000
const key = ({ url }) => url

for (const [name, listener] of Object.entries(frameworks)) {
  for (const held of ['response', 'end']) {
    for (const form of ['middleware', 'handler']) {
      describe(`pipelined requests, ${form} until the ${held}, in ${name}`, { timeout: 60_000 }, () => {
        const start = (t, locks, handler) => {
          const options = { key, until: held }
          const around = form === 'handler'
          return serve(
            t,
            listener(lockRequest(locks, options, around ? handler : undefined), around ? undefined : handler),
          )
        }

        test('a client that leaves frees the lock of a response that waits for an earlier one', async (t) => {
          const locks = open(t)
          const [begun, answered, work] = [gate(), gate(), gate()]
          const url = await start(t, locks, async (request, response) => {
            if (request.url === '/slow') {
              begun.pass()
              await work.passed
            }
            response.end()
            if (request.url === '/quick') answered.pass()
          })
          const client = pipeline(url, ['/slow', '/quick'])
          await within('both', Promise.all([begun.passed, answered.passed]))
          client.destroy()
          await free(locks, '/quick', SOON)
          work.pass()
          await free(locks, '/slow', SOON)
        })

        test('if a client leaves, its second request stops waiting', async (t) => {
          const locks = open(t)
          const holder = await locks.acquire('/second')
          const [work, ran] = [gate(), []]
          const url = await start(t, locks, async (request, response) => {
            ran.push(request.url)
            await work.passed
            response.end()
          })
          const client = pipeline(url, ['/slow', '/second'])
          await until('the second to wait', () => locks.stats().waiting === 1)
          client.destroy()
          await until('the wait to end', () => locks.stats().waiting === 0, SOON)
          await holder.release()
          work.pass()
          await free(locks, '/second', SOON)
          assert.deepEqual(ran, ['/slow'])
        })
      })
    }
  }

  test(`until the end, a pipelined handler keeps its lock after its client has left, in ${name}`, async (t) => {
    const locks = open(t)
    const [begun, closed, work] = [gate(), gate(), gate()]
    const handler = async (request, response) => {
      if (request.url === '/slow') return
      request.socket.once('close', closed.pass)
      begun.pass()
      await work.passed
      response.end('never sent')
    }
    const url = await serve(t, listener(lockRequest(locks, { key, until: 'end', maxHold: 60_000 }), handler))
    const client = pipeline(url, ['/slow', '/quick'])
    await within('the handler', begun.passed)
    client.destroy()
    await within('the connection to close', closed.passed)
    assert.equal(await locks.tryAcquire('/quick'), null)
    work.pass()
    await free(locks, '/quick', SOON)
    await locks.close({ drain: 0 })
  })
}

describe('lockRequest and responses without a socket', { timeout: 60_000 }, () => {
  test('all pipelined requests share one listener on their connection', async (t) => {
    const warnings = []
    const warn = ({ name }) => warnings.push(name)
    process.on('warning', warn)
    atEnd(t, () => process.off('warning', warn))
    const locks = open(t)
    let answered = 0
    let socket
    const url = await serve(
      t,
      lockRequest(locks, { key }, (request, response) => {
        socket = request.socket
        // The first request gets no response, so the other responses queue.
        if (request.url !== '/0') response.end()
        answered++
      }),
    )
    const paths = Array.from({ length: 100 }, (_, i) => `/${i}`)
    const client = pipeline(url, paths)
    await until('all to be answered', () => answered === paths.length)
    assert.ok(socket.listenerCount('close') < 10, `${socket.listenerCount('close')} listeners`)
    client.destroy()
    await until('all locks to be free', async () => (await locks.list()).locks.length === 0, SOON)
    assert.deepEqual(warnings, [])
  })

  test('an open connection keeps no callbacks of ended requests', async (t) => {
    const locks = open(t)
    let socket
    const url = await serve(
      t,
      lockRequest(locks, { key }, (request, response) => {
        socket = request.socket
        response.end('answer')
      }),
    )
    const client = pipeline(url, ['/a', '/b', '/c'])
    await until('the answers', () => client.bytesRead > 0)
    for (const path of ['/a', '/b', '/c']) await free(locks, path)
    assert.ok(socket.listenerCount('close') < 10)
    client.destroy()
  })

  for (const held of ['response', 'end']) {
    const ends =
      held === 'end' ? 'when its handler ends it, even after its connection has closed' : 'with its connection'
    test(`the response of an upgrade ends ${ends}`, async (t) => {
      const locks = open(t)
      const [upgraded, closed] = [gate(), gate()]
      const middleware = lockRequest(locks, { key, until: held })
      const server = createServer().listen(0, '127.0.0.1')
      await once(server, 'listening')
      atEnd(t, () => server.close())
      server.on('upgrade', (request, socket) => {
        // The server reads, and closes when the client does, like a WebSocket library.
        socket.on('error', () => {}).resume()
        socket.once('end', () => socket.end())
        socket.once('close', closed.pass)
        const response = new ServerResponse(request)
        middleware(request, response, () => upgraded.pass(response))
      })
      const client = connect(server.address().port, '127.0.0.1')
      client.write('GET /chat HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n')
      const response = await within('the upgrade', upgraded.passed)
      assert.equal(await locks.tryAcquire('/chat'), null)
      client.destroy()
      await within('the connection to close', closed.passed)
      if (held === 'end') {
        assert.equal(await locks.tryAcquire('/chat'), null, 'the handler has not ended the response')
        response.end()
      }
      await free(locks, '/chat', SOON)
    })
  }

  test('a request whose connection is already destroyed is not served', async (t) => {
    const locks = open(t)
    const socket = connect(1, '127.0.0.1').on('error', () => {})
    const request = new IncomingMessage(socket)
    socket.destroy()
    request.url = '/late'
    await lockRequest(locks, { key })(request, new ServerResponse(request), () => assert.fail('served'))
    assert.equal(locks.stats().acquired, 0)
  })

  test('a request whose connection is destroyed while it waits is not served, even before the connection closes', async (t) => {
    const locks = open(t)
    const holder = await locks.acquire('/late')
    const middleware = lockRequest(locks, { key })
    const [ended, served] = [gate(), []]
    let socket
    const url = await serve(t, async (request, response) => {
      socket = request.socket
      await middleware(request, response, () => served.push(request.url))
      ended.pass()
    })
    const client = pipeline(url, ['/late'])
    client.on('error', () => {})
    await until('the request to wait', () => locks.stats().waiting === 1)
    // Node emits 'close' later. The lock is handed on before that.
    socket.destroy()
    await holder.release()
    await within('the request to end', ended.passed)
    assert.deepEqual(served, [])
    await free(locks, '/late', SOON)
  })

  test('a request of a platform without sockets is served, and its lock is free when the response ends', async (t) => {
    const locks = open(t)
    // Adapters of serverless platforms give a request a plain object as its socket.
    const request = new IncomingMessage({ remoteAddress: '192.0.2.1' })
    request.url = '/function'
    const response = new ServerResponse(request)
    const served = gate()
    const over = lockRequest(locks, { key })(request, response, served.pass)
    await within('the request to be served', served.passed)
    assert.equal(await locks.tryAcquire('/function'), null)
    response.emit('finish')
    await over
    await free(locks, '/function')
  })
})
