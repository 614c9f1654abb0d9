// How a holder talks with the fenced storage, which is chaos/fixtures/storage.mjs: one line of JSON for each question and
// each answer.

import { once } from 'node:events'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'

/** Connects to the storage. `ask(op, details)` resolves to its answer; operations are enter, write and exit. */
export async function openStorage(port) {
  const socket = connect({ host: '127.0.0.1', port })
  socket.setNoDelay()
  await once(socket, 'connect')
  const waiting = []
  // It answers in the order in which it was asked.
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
