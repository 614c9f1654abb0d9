// The shutdown recipe of docs/servers.md: the requests that it still answers, and its end.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { closeServer, collectSockets } from '../../examples/shared/close-server.mjs'
import { within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { gate } from '../support/gate.mjs'

const SOON = 5_000
/** The limit of the tests in which the server has to reach it, in ms. */
const SHORT = 300
const GET = 'GET / HTTP/1.1\r\nhost: test\r\n\r\n'

/**
 * Starts a server that responds when `ready` resolves. Calls `install(server)` before it listens.
 * Returns the server and a connection to it.
 */
async function open(t, ready = Promise.resolve(), install = () => {}) {
  const server = createServer(async (request, response) => {
    request.resume()
    await ready
    response.end('ok')
  })
  const sockets = collectSockets(server)
  install(server)
  atEnd(t, () => {
    server.closeAllConnections()
    server.close()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect(server.address().port, '127.0.0.1')
  const accepted = once(server, 'connection')
  let answers = ''
  socket.on('data', (data) => {
    answers += data
  })
  // A reset shows as a missing answer.
  socket.on('error', () => {})
  atEnd(t, () => socket.destroy())
  await accepted
  return { server, sockets, socket, ended: once(socket, 'close'), answers: () => answers.match(/200 OK/g)?.length ?? 0 }
}

const read = (path) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

/** Returns the lines of the recipe in `text`. */
const recipeIn = (text) =>
  /^ {2}\/\/ Each open connection[\s\S]*? await new Promise\(\(closed\) => server\.close\(closed\)\)/m.exec(text)?.[0]

/** Returns the line in `text` that collects the sockets. */
const collecting = (text) => /^ *(server\.on\('connection', .*)$/m.exec(text)[1]

describe('closeServer()', { timeout: 60_000 }, () => {
  const UNFINISHED = {
    nothing: '',
    'half of a head': 'POST / HTTP/1.1\r\nhost: test\r\n',
    'half of a body': 'POST / HTTP/1.1\r\nhost: test\r\ncontent-length: 10\r\n\r\nabc',
  }
  for (const [what, sent] of Object.entries(UNFINISHED)) {
    test(`a client that has sent ${what} does not keep the server open`, async (t) => {
      const { server, sockets, socket } = await open(t, new Promise(() => {}))
      socket.write(sent)
      await within('the end of the server', closeServer(server, sockets, SHORT), SOON)
    })
  }

  test('a connection whose last request was in flight does not keep the server open without keepAliveTimeout', async (t) => {
    const ready = gate()
    const { server, sockets, socket, ended, answers } = await open(t, ready.passed)
    server.keepAliveTimeout = 0
    socket.write(GET)
    await once(server, 'request')
    const closed = closeServer(server, sockets, SHORT)
    ready.pass()
    await within('the end of the server', closed, SOON)
    await ended
    assert.equal(answers(), 1)
  })

  // Bun closes idle connections by itself: see docs/runtimes.md.
  const skip = process.versions.bun !== undefined
  test('a request that has arrived on an idle connection is answered, and its connection closes', {
    skip,
  }, async (t) => {
    const { server, sockets, socket, ended, answers } = await open(t)
    socket.write(GET)
    await once(socket, 'data')
    // This reaches the kernel at once, and the server has not read it when it closes.
    socket.write(GET)
    await within('the end of the server', closeServer(server, sockets), SOON)
    await ended
    assert.equal(answers(), 2)
  })

  test('a set that is made directly before or after listen() gets the first connection, and a later set does not', async (t) => {
    for (const [when, size] of [
      ['before', 1],
      ['after', 1],
      ['too late', 0],
    ]) {
      const server = createServer()
      const sets = []
      if (when === 'before') sets.push(collectSockets(server))
      server.listen(0, '127.0.0.1')
      if (when === 'after') sets.push(collectSockets(server))
      await once(server, 'listening')
      const socket = connect(server.address().port, '127.0.0.1')
      atEnd(t, () => socket.destroy())
      atEnd(t, () => server.close())
      await once(server, 'connection')
      if (when === 'too late') sets.push(collectSockets(server))
      assert.equal(sets[0].size, size, when)
    }
  })

  test('a request in flight is answered, and an idle connection closes after keepAliveTimeout', async (t) => {
    const ready = gate()
    const { server, sockets, socket, ended, answers } = await open(t, ready.passed)
    server.keepAliveTimeout = SHORT
    socket.write(GET)
    await once(server, 'request')
    const closed = closeServer(server, sockets)
    ready.pass()
    await within('the end of the server', closed, SOON)
    await ended
    assert.equal(answers(), 1)
  })

  test('docs/servers.md shows the same recipe', () => {
    const page = read('docs/servers.md')
    const source = read('examples/shared/close-server.mjs')
    const [, limit] = /limit = (\w+)\)/.exec(source)
    assert.equal(collecting(page), collecting(source))
    assert.equal(recipeIn(page), recipeIn(source).replace('}, limit)', `}, ${limit})`))
  })

  test('the recipe of README.md answers requests, then ends the work, and then closes the client', async (t) => {
    const page = read('README.md')
    assert.ok(page.includes('](examples/shared/close-server.mjs)'), 'the README links to the functions')
    const [, block] = /```js\n([^`]*?await closeServer\([^`]*?)```/.exec(page)
    const ready = gate()
    const steps = []
    const step = (name) => async () => {
      steps.push(name)
    }
    const listeners = {}
    const names = ['server', 'process', 'worker', 'nightly', 'locks', 'collectSockets', 'closeServer']
    const install = (server) =>
      new Function(...names, block)(
        server,
        { once: (signal, listener) => Object.assign(listeners, { [signal]: listener }) },
        { stop: step('worker') },
        { stop: step('nightly') },
        { close: step('locks') },
        collectSockets,
        closeServer,
      )
    const { server, socket, ended, answers } = await open(t, ready.passed, install)
    server.keepAliveTimeout = SHORT
    socket.write(GET)
    await once(server, 'request')
    const stopped = listeners.SIGTERM()
    assert.deepEqual(steps, [])
    ready.pass()
    await within('the end of the recipe', stopped, SOON)
    await ended
    assert.equal(answers(), 1)
    assert.deepEqual(steps, ['worker', 'nightly', 'locks'])
  })
})
