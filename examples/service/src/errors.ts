// Answers errors with a status only. Their messages may name the store, a lock or a file.

import { STATUS_CODES } from 'node:http'
import type { ErrorRequestHandler } from 'express'
import type { Log } from './log.js'

/**
 * Returns the status of an error about the request, or else the one that lockRequest has set, or
 * 500.
 */
function statusOf(error: unknown, current: number): number {
  if (error instanceof URIError) return 400
  // `expose` marks the errors of Express and its parsers. A status alone may come from another
  // server.
  const { status, expose } = Object(error) as { status?: unknown; expose?: unknown }
  if (expose === true && typeof status === 'number') return status
  return current >= 400 ? current : 500
}

export const answerErrors =
  (log: Log): ErrorRequestHandler =>
  (error, request, response, next) => {
    const status = statusOf(error, response.statusCode)
    if (status >= 500) log.error('request failed', { method: request.method, path: request.path, status, error })
    // A part of the answer is sent. Express closes the connection, so that the client sees that the
    // answer is cut off.
    if (response.headersSent) return next(error)
    response.status(status).type('application/problem+json').json({ title: STATUS_CODES[status], status })
  }
