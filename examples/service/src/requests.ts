// Logs each request, and observes how long it took.

import type { Request, RequestHandler } from 'express'
import type { Log } from './log.js'
import type { Metrics } from './metrics.js'

/**
 * Returns the pattern of the request's route. The path as a label would make one series per order.
 */
export const routeOf = ({ baseUrl, route }: Request): string => (route ? `${baseUrl}${route.path}` : 'none')

export const watchRequests =
  (log: Log, { requests }: Metrics): RequestHandler =>
  (request, response, next) => {
    const begin = performance.now()
    const { method } = request
    const [path] = request.originalUrl.split('?', 1)
    response.once('close', () => {
      const ms = performance.now() - begin
      // 499 is what nginx logs if the client has left before the answer.
      const status = response.writableFinished ? response.statusCode : 499
      requests.observe({ method, route: routeOf(request), status }, ms / 1_000)
      log.info('request', { method, path, status, ms: Math.round(ms), fence: request.lease?.fence })
    })
    next()
  }
