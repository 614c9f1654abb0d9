// A relay in front of a server that knows when each request passed and which of them were answered. The library's own
// clock must not be the one that says when a renewal was sent.

import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { now } from './clock.mjs'
import { atEnd } from './endings.mjs'

/**
 * Starts a relay to 127.0.0.1:`port`. `sent` is when the newest answered request came by: no earlier than it was sent.
 */
export async function startRelay(t, port) {
  const relay = { port: 0, sent: 0, sockets: new Set() }
  const server = createServer((client) => {
    const upstream = connect({ host: '127.0.0.1', port })
    let asked = 0
    for (const socket of [client, upstream]) {
      socket.setNoDelay()
      relay.sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        relay.sockets.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
    client.on('data', (chunk) => {
      asked = now()
      upstream.write(chunk)
    })
    upstream.on('data', (chunk) => {
      relay.sent = asked
      client.write(chunk)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  relay.port = server.address().port
  atEnd(t, () => {
    for (const socket of relay.sockets) socket.destroy()
    server.close()
  })
  return relay
}
