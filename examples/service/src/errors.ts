// What visitors see of errors: a status, and nothing of the message, which may name the store, its lock or a file.

import { STATUS_CODES } from 'node:http'
import type { ErrorRequestHandler } from 'express'
import type { Log } from './log.js'

/** Returns the status of an error about the request, or the one that lockRequest has set already, or 500. */
function statusOf(error: unknown, current: number): number {
  if (error instanceof URIError) return 400
  // Express and its parsers mark their errors so. A status alone may be that of a server which this one has asked.
  const { status, expose } = Object(error) as { status?: unknown; expose?: unknown }
  if (expose === true && typeof status === 'number') return status
  return current >= 400 ? current : 500
}

export const answerErrors =
  (log: Log): ErrorRequestHandler =>
  (error, request, response, next) => {
    const status = statusOf(error, response.statusCode)
    if (status >= 500) log.error('request failed', { method: request.method, path: request.path, status, error })
    // Half an answer is out: Express closes the connection, so that nobody takes it for a whole one.
    if (response.headersSent) return next(error)
    response.status(status).type('application/problem+json').json({ title: STATUS_CODES[status], status })
  }
