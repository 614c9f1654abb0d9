// An Express 5 server whose requests run one at a time, and a client that sends 20 requests at
// once.

import { once } from 'node:events'
import express from 'express'
import * as leasehold from 'leasehold'
import { lockRequest } from 'leasehold/express'
import { exercise } from './exercise.cjs'

const locks = leasehold.createLockClient('memory:install')
let inside = 0

const app = express()
app.post('/work/:name', lockRequest(locks, { key: ({ params }) => params.name }), async (request, response) => {
  if (++inside !== 1) throw new Error(`${inside} at once`)
  await new Promise(setImmediate)
  inside -= 1
  response.json({ fence: request.lease.fence })
})
app.post('/taken', lockRequest(locks, { key: () => 'taken', wait: 0 }), (_request, response) => response.send('served'))
app.post('/exercise', async (_request, response) => {
  await exercise(leasehold, 'memory:exercise')
  response.send('exercised')
})

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${server.address().port}`

const send = (path) => fetch(url + path, { method: 'POST' })
const post = async (path) => {
  const response = await send(path)
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return response
}
const answers = await Promise.all(Array.from({ length: 20 }, async () => (await post('/work/page')).json()))
if (new Set(answers.map(({ fence }) => fence)).size !== 20) throw new Error('two requests had one fence')

const lease = await locks.acquire('taken')
const refused = await send('/taken')
const after = Number(refused.headers.get('retry-after'))
if (refused.status !== 423 || !(after >= 1)) throw new Error(`${refused.status}, Retry-After ${after}`)
await lease.release()
if ((await (await post('/taken')).text()) !== 'served') throw new Error('the lock was free')
console.log(await (await post('/exercise')).text())

await new Promise((resolve) => {
  server.close(resolve)
  server.closeAllConnections()
})
await locks.close()
