// The connection of a holder to the fenced storage, which is chaos/fixtures/storage.mjs. Each
// request and each reply is one line of JSON.

import { once } from 'node:events'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'

/**
 * Connects to the storage. `ask(op, details)` resolves to its reply; the operations are enter,
 * write and exit.
 */
export async function openStorage(port) {
  const socket = connect({ host: '127.0.0.1', port })
  socket.setNoDelay()
  await once(socket, 'connect')
  const waiting = []
  // The storage replies in the order of the requests.
  createInterface({ input: socket }).on('line', (line) => waiting.shift()(JSON.parse(line)))
  return {
    ask: (op, details) =>
      new Promise((resolve) => {
        waiting.push(resolve)
        socket.write(`${JSON.stringify({ op, ...details })}\n`)
      }),
    close: () => socket.end(),
  }
}
