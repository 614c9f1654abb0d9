// Puts the routes in order.

import express, { type Express, type RequestHandler, type Router } from 'express'
import { answerErrors } from './errors.js'
import type { Health } from './health.js'
import type { Log } from './log.js'
import type { Metrics } from './metrics.js'
import { watchRequests } from './requests.js'

interface Parts {
  readonly log: Log
  readonly health: Health
  readonly metrics: Metrics
  readonly orders: Router
  readonly trace?: RequestHandler | undefined
}

export function createApp({ log, health, metrics, orders, trace }: Parts): Express {
  const app = express()
  app.disable('x-powered-by')
  // This comes before the rest: orchestrators ask every few seconds, which would fill the log.
  app.use('/health', health.routes())
  app.get('/metrics', metrics.answer)
  if (trace) app.use(trace)
  app.use(watchRequests(log, metrics))
  app.use('/orders', orders)
  app.use((_request, response) => {
    response.status(404).json({ title: 'Not Found', status: 404 })
  })
  app.use(answerErrors(log))
  return app
}
