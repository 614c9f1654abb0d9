// Ports of 127.0.0.1 that stay ours while a server is down.

import { once } from 'node:events'
import { createServer } from 'node:net'

// Below those that the kernel takes for outgoing connections (from 32768 on Linux): one of them could take the port of a
// server that is about to restart, and a client that knocks at such a port for long can even be connected to itself.
const FIRST = 11_000
const LAST = 20_999
/** A cluster node talks to the others on its port plus this; these lie above all of ours. */
const BUS = 10_000

const given = new Set()

async function isFree(port) {
  const server = createServer().listen({ port, host: '127.0.0.1', exclusive: true })
  try {
    await once(server, 'listening')
  } catch {
    return false
  }
  server.close()
  await once(server, 'close')
  return true
}

/** A port on which nobody listens; with `bus`, nobody does on that plus 10 000 either. This process gets each only once. */
export async function freePort({ bus = false } = {}) {
  for (let tries = 0; tries < 1_000; tries++) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST + 1))
    if (given.has(port) || !(await isFree(port)) || (bus && !(await isFree(port + BUS)))) continue
    given.add(port)
    return port
  }
  throw new Error(`no free port between ${FIRST} and ${LAST}`)
}
