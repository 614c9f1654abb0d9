// A Remix app on the Express adapter: a loader and an action of one route, in a server build as Remix' compiler writes
// it, written by hand because what is tried here is the server and not the compiler.

import { once } from 'node:events'
import { createRequestHandler } from '@remix-run/express'
import { json } from '@remix-run/node'
import express from 'express'
import * as leasehold from 'leasehold'
import { exercise } from './exercise.cjs'

const locks = leasehold.createLockClient('memory:install')

const lockRoute = {
  loader: async () => json(await locks.inspect('account')),
  action: async () => {
    const fence = await locks.withLock('account', async (lease) => {
      await exercise(leasehold, 'memory:exercise')
      lease.assertHeld()
      return lease.fence
    })
    return json({ fence })
  },
}

const build = {
  entry: { module: { default: () => new Response('no page here', { status: 404 }) } },
  routes: { 'routes/lock': { id: 'routes/lock', path: 'lock', module: lockRoute } },
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
const url = `http://127.0.0.1:${server.address().port}/lock`

const answer = async (request) => {
  const response = await fetch(url, request)
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  return response.json()
}
const turns = [answer({ method: 'POST' }), answer({ method: 'POST' })]
const [first, second] = await Promise.all(turns)
if (!(first.fence !== second.fence && first.fence > 0)) throw new Error(`fences ${first.fence}, ${second.fence}`)
if ((await answer()) !== null) throw new Error('it is still held')
console.log('exercised')

await new Promise((resolve) => {
  server.close(resolve)
  server.closeAllConnections()
})
await locks.close()
