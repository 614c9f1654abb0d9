// Ports of 127.0.0.1 that this process keeps while a server is down.

import { once } from 'node:events'
import { createServer } from 'node:net'

// The range is below the ports that the kernel takes for outgoing connections (from 32768 on
// Linux). One of these connections could take the port of a server that is about to restart. A
// client that connects to such a port for a long time can even be connected to itself.
const FIRST = 11_000
const LAST = 20_999
/**
 * A cluster node talks to the other nodes on its port plus this number. These ports lie above all
 * of ours.
 */
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

/**
 * Returns a port on which no process listens; with `bus`, the port plus 10 000 is free, too. This
 * process gets each port only once.
 */
export async function freePort({ bus = false } = {}) {
  for (let tries = 0; tries < 1_000; tries++) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST + 1))
    if (given.has(port) || !(await isFree(port)) || (bus && !(await isFree(port + BUS)))) continue
    given.add(port)
    return port
  }
  throw new Error(`no free port between ${FIRST} and ${LAST}`)
}
