// The shutdown recipe of docs/servers.md with the servers of node:https and node:http2.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createSecureServer, connect as openSession } from 'node:http2'
import { Agent, createServer, get } from 'node:https'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { closeServer, collectSockets } from '../../examples/shared/close-server.mjs'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { createAuthority, tlsOptions } from '../support/tls.mjs'

const SOON = 5_000
/** The limit in tests in which the server has to reach it, in ms. */
const SHORT = 300
/** The first bytes of a TLS record of 512 bytes that contains a ClientHello. */
const HALF = Buffer.from('1603010200010001fc0303', 'hex')

/** Closes an HTTP/2 server with the recipe and the lines that docs/servers.md adds to it. */
async function closeHttp2(server, sockets, limit) {
  server.on('session', (session) => session.close())
  const closed = closeServer(server, sockets, limit)
  for (const session of server.sessions) session.close()
  await closed
}

function createHttp2(tls, listener) {
  const server = createSecureServer({ ...tls, allowHTTP1: true }, listener)
  server.sessions = new Set()
  server.on('session', (session) => {
    server.sessions.add(session)
    session.once('close', () => server.sessions.delete(session))
  })
  return server
}

const KINDS = {
  https: { create: createServer, close: closeServer },
  http2: { create: createHttp2, close: closeHttp2 },
}

/** Starts a server that responds when `ready` resolves, and ends it after the test. */
async function open(t, { create, close }, ready = Promise.resolve()) {
  const tls = tlsOptions(createAuthority(temporaryFolder(t)).issue('server'))
  const server = create(tls, async (_request, response) => {
    await ready
    response.end('ok')
  })
  const sockets = collectSockets(server)
  atEnd(t, () => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  return { server, sockets, port, ca: tls.ca, close: (limit) => close(server, sockets, limit) }
}

/** Sends a request over HTTP/1. Resolves with the text of the response. */
async function ask({ port, ca }, agent) {
  const [response] = await once(get({ host: '127.0.0.1', port, ca, agent }), 'response')
  return textOf(response)
}

async function textOf(stream) {
  let text = ''
  for await (const part of stream.setEncoding('utf8')) text += part
  return text
}

for (const [name, kind] of Object.entries(KINDS)) {
  describe(`closeServer() of ${name}`, { timeout: 60_000 }, () => {
    for (const [what, sent] of Object.entries({ nothing: '', 'half of a ClientHello': HALF })) {
      test(`a client that has sent ${what} does not keep the server open`, async (t) => {
        const { server, sockets, port, close } = await open(t, kind)
        const socket = connect(port, '127.0.0.1')
        // The server may reset the connection.
        socket.on('error', () => {})
        atEnd(t, () => socket.destroy())
        const accepted = once(server, 'connection')
        socket.write(sent)
        await accepted
        await within('the end of the server', close(SHORT), SOON)
        await until('the set of sockets to be empty', () => sockets.size === 0)
      })
    }

    test('a request in flight is answered, and its connection closes before the limit', async (t) => {
      const ready = gate()
      const opened = await open(t, kind, ready.passed)
      opened.server.keepAliveTimeout = SHORT
      const agent = new Agent({ keepAlive: true })
      atEnd(t, () => agent.destroy())
      const answer = ask(opened, agent)
      await once(opened.server, 'request')
      const closed = opened.close()
      ready.pass()
      assert.equal(await answer, 'ok')
      // The limit is 10 s.
      await within('the end of the server', closed, SOON)
      await until('the set of sockets to be empty', () => opened.sockets.size === 0)
    })
  })
}

test('closeServer() of http2: a stream in flight is answered, and its session ends', { timeout: 60_000 }, async (t) => {
  const ready = gate()
  const { server, sockets, port, ca, close } = await open(t, KINDS.http2, ready.passed)
  const session = openSession(`https://127.0.0.1:${port}`, { ca })
  atEnd(t, () => session.destroy())
  const stream = session.request({ ':path': '/' })
  const ended = once(session, 'close')
  await once(server, 'request')
  const closed = close()
  ready.pass()
  assert.equal(await textOf(stream), 'ok')
  await within('the end of the server', closed, SOON)
  await ended
  await until('the set of sockets to be empty', () => sockets.size === 0)
})
