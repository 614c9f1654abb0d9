// Real HTTP servers for tests, of each framework that the middleware supports, and the locks of
// their requests.

import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { createLockClient } from 'leasehold'
import { until } from './clock.mjs'
import { atEnd } from './endings.mjs'

const require = createRequire(import.meta.url)

const failed = (error, response) => {
  // This is what Express would answer without an error handler.
  response.setHeader('x-status-found', response.statusCode)
  response.statusCode = 500
  response.setHeader('x-error', String(error.code ?? error.message))
  response.end()
}

const withExpress = (name) => (middleware, handler) => {
  const app = require(name)()
  app.disable('x-powered-by')
  app.use(middleware)
  if (handler) app.use(handler)
  // Express recognizes an error handler by its four parameters.
  app.use((error, _request, response, _next) => failed(error, response))
  return app
}

const withErrorHandler = (name) => (middleware, answer) => {
  const app = require(name)()
  app.use(middleware)
  app.use((error, request, response, _next) => answer(request, response, error))
  return app
}

/**
 * Each framework makes a listener of a middleware and a function that answers errors. The last one
 * has no `next`: the middleware rejects.
 */
export const errorHandled = {
  'Express 5': withErrorHandler('express'),
  'Express 4': withErrorHandler('express4'),
  'node:http': (middleware, answer) => (request, response) => {
    middleware(request, response).catch((error) => answer(request, response, error))
  },
}

/** Each framework makes a listener of a middleware and a handler behind it. */
export const frameworks = {
  'Express 5': withExpress('express'),
  'Express 4': withExpress('express4'),
  'node:http': (middleware, handler) => (request, response) => {
    middleware(request, response, (error) => {
      if (error) failed(error, response)
      else handler(request, response, (error) => failed(error, response))
    })
  },
}

/** Serves with `listener` on a free port of 127.0.0.1 until the test is over. Returns the URL. */
export async function serve(t, listener) {
  const server = createServer(listener).listen(0, '127.0.0.1')
  await once(server, 'listening')
  atEnd(t, () => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${server.address().port}/`
}

/**
 * Returns a client that is closed after the test. It has a store of its own unless `options` name
 * one.
 */
export function open(t, options) {
  const locks = createLockClient({ store: `memory:${randomUUID()}`, ...options })
  atEnd(t, () => locks.close())
  return locks
}

/** Resolves when the lock is free. */
export const free = (locks, key, timeout) =>
  until(`the lock ${key} to be free`, async () => (await locks.inspect(key)) === null, timeout)

/**
 * Sends requests for `paths` on one connection, without waiting for the answers. Returns the
 * connection.
 */
export function pipeline(url, paths) {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  // The server may reset a connection that the test has closed.
  socket.on('error', () => {})
  socket.write(paths.map((path) => `GET ${path} HTTP/1.1\r\nHost: test\r\n\r\n`).join(''))
  return socket
}
