// An Express server that starts a lock worker when it listens. Start it twice:
//   npm run dev
//   PORT=3001 npm run dev

import { fileURLToPath } from 'node:url'
import express from 'express'
import { createLockClient } from 'leasehold'
import { config } from './config.mjs'
import { Jobs } from './jobs.mjs'
import { openJournal } from './journal.mjs'
import { Live } from './live.mjs'
import { createJobWorker, KEY } from './worker.mjs'

const { workerId, jobMs } = config
/** How many of the newest jobs and tenures the page shows. */
const SHOWN = { jobs: 60, tenures: 6 }

const jobs = new Jobs(await openJournal(config))
// LEASEHOLD_URL, or REDIS_URL, or files of this machine. A short ttl, because a crash on Redis costs that long.
const locks = createLockClient({ name: workerId, ttl: 5000 })
const worker = createJobWorker({ client: locks, jobs, jobMs, workerId })

/** What the page shows. */
async function state() {
  const [holder, { count, done, tenures }] = await Promise.all([locks.inspect(KEY), jobs.list()])
  const first = Math.max(1, count - SHOWN.jobs + 1)
  return {
    server: { workerId, state: worker.state },
    holder: holder && { name: holder.holder, fence: holder.fence },
    count,
    first,
    done: done.filter((entry) => entry.done >= first),
    finished: done.length,
    tenures: tenures.slice(-SHOWN.tenures).reverse(),
  }
}

const live = new Live(state)
const app = express()
app.disable('x-powered-by')
app.use((_request, response, next) => {
  response.set('content-security-policy', "default-src 'self'")
  next()
})
app.use(express.static(fileURLToPath(new URL('public', import.meta.url))))
app.get('/events', live.handle)
app.get('/state', async (_request, response) => response.json(await state()))
app.post('/jobs', express.json(), async (request, response) => {
  const count = request.body?.count
  if (!Number.isInteger(count) || count < 1 || count > 100) {
    return response.status(400).json({ error: 'count must be a whole number from 1 to 100' })
  }
  await jobs.add(count)
  response.status(201).json({ added: count })
})
// Four parameters are how Express knows a handler of errors. Its own would answer with a page and a stack.
app.use((error, _request, response, _next) => {
  response.status(error.status ?? 500).json({ error: error.message })
})

const server = app.listen(config.port, (error) => {
  if (error) {
    console.error(error.message)
    process.exit(1)
  }
  console.log(`Express server started at http://localhost:${server.address().port}`, { workerId })
  worker.start()
})

/** The lock goes to another server before this process does. A second signal ends it at once. */
async function shutDown(signal) {
  console.log(`${signal}: shutting down`, { workerId })
  live.close()
  server.close()
  await worker.stop()
  await Promise.all([locks.close(), jobs.close()])
}
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, shutDown)
