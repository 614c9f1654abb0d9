// Starts the service: reads the settings, connects, listens.

import { once } from 'node:events'
import { createServer } from 'node:http'
import { createApp } from './app.js'
import { readConfig } from './config.js'
import { Health } from './health.js'
import { openLocks } from './locks.js'
import { createLog } from './log.js'
import { Metrics } from './metrics.js'
import { orderRoutes } from './orders.js'
import { Outbox } from './outbox.js'
import { Payments } from './payments.js'
import { Provider } from './provider.js'
import { createReceiptWorker } from './receipts.js'
import { openRedis } from './redis.js'
import { scheduleReport } from './report.js'
import { shutDownOnSignal } from './shutdown.js'

async function start(): Promise<void> {
  const config = readConfig(process.env)
  const log = createLog({ instance: config.instance })

  const locks = openLocks(config, log)
  await locks.ready() // rejects at once if the store can't be reached
  const redis = await openRedis(config, log)
  const tracing = config.isTraced ? (await import('./tracing.js')).startTracing(config, locks) : undefined

  const payments = new Payments(redis)
  const worker = createReceiptWorker(locks, new Outbox(redis), log)
  const nightly = scheduleReport(config, locks, payments, log)
  const health = new Health()
  const orders = orderRoutes({ config, locks, payments, provider: new Provider(config.paymentMs, log) })
  const app = createApp({ log, health, metrics: new Metrics(locks), orders, trace: tracing?.requests })
  const server = createServer(app)
  const closeRest = () => Promise.all([redis.close(), tracing?.stop()])
  shutDownOnSignal({ log, health, server, worker, nightly, locks, closeRest })

  server.listen(config.port)
  await once(server, 'listening')
  worker.start()
  health.begin()
  log.info('listening', { port: config.port })
}

start().catch((error: unknown) => {
  createLog().error('not started', { error })
  process.exit(1)
})
