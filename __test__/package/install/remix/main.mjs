// A Remix app on the Express adapter: a loader and an action of one route. The server build is
// written by hand in the form of Remix's compiler, because this tests the server and not the
// compiler.

import { once } from 'node:events'
import { createRequestHandler } from '@remix-run/express'
import { json } from '@remix-run/node'
import express from 'express'
import * as leasehold from 'leasehold'
import { withRequestLock } from 'leasehold/remix'
import { exercise } from './exercise.cjs'

const locks = leasehold.createLockClient('memory:install')

const key = ({ params }) => params.key
const lockRoute = {
  loader: async ({ params }) => json(await locks.inspect(params.key)),
  action: withRequestLock(locks, { key, wait: 20_000 }, async (lease) => {
    await exercise(leasehold, 'memory:exercise')
    lease.assertHeld()
    return json({ fence: lease.fence })
  }),
}
const tryRoute = { action: withRequestLock(locks, { key, wait: 0 }, (lease) => json({ key: lease.key })) }

const build = {
  entry: { module: { default: () => new Response('no page here', { status: 404 }) } },
  routes: {
    'routes/lock': { id: 'routes/lock', path: 'lock/:key', module: lockRoute },
    'routes/try': { id: 'routes/try', path: 'try/:key', module: tryRoute },
  },
  assets: { entry: { imports: [], module: '' }, routes: {}, url: '', version: '1' },
  assetsBuildDirectory: 'build',
  publicPath: '/build/',
  future: {},
  isSpaMode: false,
}

const app = express()
app.all('*', createRequestHandler({ build, mode: 'production' }))
const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${server.address().port}`

const answer = async (path, request) => {
  const response = await fetch(url + path, request)
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  return response.json()
}
const post = { method: 'POST' }
const [first, second] = await Promise.all([answer('/lock/account', post), answer('/lock/account', post)])
if (!(first.fence !== second.fence && first.fence > 0)) throw new Error(`fences ${first.fence}, ${second.fence}`)
if ((await answer('/lock/account')) !== null) throw new Error('the lock is still held')

const taken = await locks.acquire('taken')
const refused = await fetch(`${url}/try/taken`, post)
const after = Number(refused.headers.get('retry-after'))
if (refused.status !== 423 || !(after >= 1)) throw new Error(`${refused.status}, Retry-After ${after}`)
await taken.release()
if ((await answer('/try/taken', post)).key !== 'taken') throw new Error('the lock was free')
console.log('exercised')

await new Promise((resolve) => {
  server.close(resolve)
  server.closeAllConnections()
})
await locks.close()
