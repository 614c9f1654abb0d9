// An Express server that starts a lock worker when it listens. Start it twice:
//   npm run dev
//   PORT=3001 npm run dev

import { fileURLToPath } from 'node:url'
import express from 'express'
import { createLockClient } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { createClient } from 'redis'
import { closeServer, collectSockets } from '../shared/close-server.mjs'
import { readConfig } from '../shared/config.mjs'
import { Jobs } from '../shared/jobs.mjs'
import { openJournal } from '../shared/journal.mjs'
import { EVENT_STREAM, Live } from '../shared/live.mjs'
import { shutDownOnSignal } from '../shared/shutdown-signals.mjs'
import { stateOf } from '../shared/state.mjs'
import { visible } from '../shared/visible.mjs'
import { createJobWorker } from '../shared/worker.mjs'

const config = readConfig('express-example', import.meta.url)
const { workerId, lockKey, addKey } = config

const jobs = new Jobs(await openJournal(config, createClient))
// The store is LEASEHOLD_URL, or REDIS_URL, or files of this machine. The ttl is short, because a
// crash on Redis costs that long.
const locks = createLockClient({ name: workerId, ttl: 5000 })
const worker = createJobWorker({ client: locks, jobs, ...config })
const state = () => stateOf({ locks, jobs, worker, lockKey })
const live = new Live(state)

/**
 * Takes a lock for each request that adds jobs, until the answer is sent. A request that waits for
 * longer than 2 s is answered 423.
 */
const oneAtATime = lockRequest(locks, { key: () => addKey, wait: 2000 })

const app = express()
app.disable('x-powered-by')
app.use((_request, response, next) => {
  response.set('content-security-policy', "default-src 'self'")
  next()
})
for (const folder of ['public', '../shared/public']) {
  app.use(express.static(fileURLToPath(new URL(folder, import.meta.url))))
}
app.get('/events', (_request, response) => {
  response.set(EVENT_STREAM)
  response.flushHeaders()
  response.on('close', live.follow(response))
})
app.get('/state', async (_request, response) => response.json(await state()))
app.post('/jobs', express.json(), oneAtATime, async (request, response) => {
  const count = request.body?.count
  if (!Number.isInteger(count) || count < 1 || count > 100) {
    return response.status(400).json({ error: 'count must be a whole number from 1 to 100' })
  }
  await jobs.add(count)
  response.status(201).json({ added: count })
})
// Express recognizes an error handler by its four parameters. Its own handler would answer with a
// page and a stack.
app.use((error, _request, response, _next) => {
  const { status, ...told } = visible(error)
  response.status(status).json(told)
})

const server = app.listen(config.port, (error) => {
  if (error) {
    console.error(error.message)
    process.exit(1)
  }
  console.log(`Express server started at http://localhost:${server.address().port}`, { workerId })
  worker.start()
})
const sockets = collectSockets(server)
// Idle connections delay the shutdown for this long.
server.keepAliveTimeout = 1_000

/** Answers the requests in flight and ends the current job, then releases the locks. */
async function shutDown(signal) {
  console.log(`${signal}: shutting down`, { workerId })
  live.close()
  // No request depends on the worker, so another server may continue with the jobs at once.
  await Promise.all([closeServer(server, sockets), worker.stop()])
  await locks.close()
  await jobs.close()
}
shutDownOnSignal(shutDown)
