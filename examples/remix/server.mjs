// A Remix app on the Express adapter, with a lock worker. Start it twice:
//   npm run dev
//   PORT=3001 npm run dev

import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { createRequestHandler } from '@remix-run/express'
import express from 'express'
import { createLockClient } from 'leasehold'
import { createClient } from 'redis'
import { closeServer, collectSockets } from '../shared/close-server.mjs'
import { readConfig } from '../shared/config.mjs'
import { Jobs } from '../shared/jobs.mjs'
import { openJournal } from '../shared/journal.mjs'
import { Live } from '../shared/live.mjs'
import { shutDownOnSignal } from '../shared/shutdown-signals.mjs'
import { stateOf } from '../shared/state.mjs'
import { visible } from '../shared/visible.mjs'
import { createJobWorker } from '../shared/worker.mjs'

const config = readConfig('remix-example', import.meta.url)
const { workerId, lockKey, addKey } = config

const jobs = new Jobs(await openJournal(config, createClient))
// The store is LEASEHOLD_URL, or REDIS_URL, or files of this machine. The ttl is short, because a
// crash on Redis costs that long.
const locks = createLockClient({ name: workerId, ttl: 5000 })
const worker = createJobWorker({ client: locks, jobs, ...config })
const readState = () => stateOf({ locks, jobs, worker, lockKey })
const live = new Live(readState)
/** Returns the state for loaders. In development, the browser shows what a loader throws. */
const state = () =>
  readState().catch((error) => {
    const { status, error: text } = visible(error)
    throw new Response(text, { status })
  })

const app = express()
const server = createServer(app)
const sockets = collectSockets(server)
// Idle connections delay the shutdown for this long.
server.keepAliveTimeout = 1_000
app.disable('x-powered-by')

const inHere = (path) => fileURLToPath(new URL(path, import.meta.url))
const vite = process.argv.includes('--built') ? undefined : await startVite()
if (!vite) app.use('/assets', express.static(inHere('build/client/assets'), { immutable: true, maxAge: '1y' }))

const build = vite ? () => vite.ssrLoadModule('virtual:remix/server-build') : await import('./build/server/index.js')
// The values that loaders and actions find in their `context`.
const getLoadContext = () => ({ locks, jobs, addKey, live, state })
app.all('*', createRequestHandler({ build, mode: vite ? 'development' : 'production', getLoadContext }))

/** Compiles the app during development. */
async function startVite() {
  const { createServer: createVite } = await import('vite')
  const vite = await createVite({ root: inHere('.'), server: { middlewareMode: true, hmr: { server } } })
  app.use(vite.middlewares)
  return vite
}

server.once('error', (error) => {
  console.error(error.message)
  process.exit(1)
})
server.listen(config.port, () => {
  console.log(`Remix server started at http://localhost:${server.address().port}`, { workerId })
  worker.start()
})

/** Answers the requests in flight and ends the current job, then releases the locks. */
async function shutDown(signal) {
  console.log(`${signal}: shutting down`, { workerId })
  live.close()
  // No request depends on the worker, so another server may continue with the jobs at once.
  await Promise.all([closeServer(server, sockets), vite?.close(), worker.stop()])
  await locks.close()
  await jobs.close()
}
// Vite ends the process at once, in the middle of a job.
if (vite) process.removeAllListeners('SIGTERM')
shutDownOnSignal(shutDown)
