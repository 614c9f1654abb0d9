// What visitors see of errors: a status, and nothing of the message, which may name the store, its lock or a file.

import { STATUS_CODES } from 'node:http'
import type { ErrorRequestHandler } from 'express'
import type { Log } from './log.js'

/** Returns the status that Express gave the error, or that lockRequest has set already. */
function statusOf(error: unknown, current: number): number {
  const { status } = Object(error) as { status?: unknown }
  if (typeof status === 'number' && status >= 400 && status < 600) return status
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
