// An Express 5 server whose requests take turns, and as many requests at once as a page may make.

import { once } from 'node:events'
import express from 'express'
import * as leasehold from 'leasehold'
import { exercise } from './exercise.cjs'

const locks = leasehold.createLockClient('memory:install')
let inside = 0

const app = express()
app.post('/work', async (_request, response) => {
  const fence = await locks.withLock('work', async (lease) => {
    if (++inside !== 1) throw new Error(`${inside} at once`)
    await new Promise(setImmediate)
    inside -= 1
    return lease.fence
  })
  response.json({ fence })
})
app.post('/exercise', async (_request, response) => {
  await exercise(leasehold, 'memory:exercise')
  response.send('exercised')
})

const server = app.listen(0, '127.0.0.1')
await once(server, 'listening')
const url = `http://127.0.0.1:${server.address().port}`

const post = async (path) => {
  const response = await fetch(url + path, { method: 'POST' })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
  return response
}
const answers = await Promise.all(Array.from({ length: 20 }, async () => (await post('/work')).json()))
if (new Set(answers.map(({ fence }) => fence)).size !== 20) throw new Error('two requests had one fence')
console.log(await (await post('/exercise')).text())

await new Promise((resolve) => {
  server.close(resolve)
  server.closeAllConnections()
})
await locks.close()
