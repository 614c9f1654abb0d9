// The Redis protocol on a bare socket, only as much of it as the benchmark needs. Commands of one
// turn of the event loop are sent in one write, and replies come back in order. Clients are
// compared with this limit.

import { once } from 'node:events'
import { connect } from 'node:net'

/** Connects to the Redis on `port` of this host. */
export async function openWire(port) {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  await once(socket, 'connect')
  socket.setEncoding('latin1')

  let outgoing = ''
  let incoming = ''
  const waiting = []
  let next = 0

  function settle(reply, error) {
    const { resolve, reject } = waiting[next]
    waiting[next++] = undefined
    // Settled entries are removed in blocks: shift() on a long array costs more than the command.
    if (next === waiting.length || next === 4096) {
      waiting.splice(0, next)
      next = 0
    }
    if (error) reject(error)
    else resolve(reply)
  }

  socket.on('data', (chunk) => {
    incoming += chunk
    let at = 0
    for (;;) {
      const end = incoming.indexOf('\r\n', at)
      if (end < 0) break
      const type = incoming[at]
      const line = incoming.slice(at + 1, end)
      if (type === '$') {
        const length = Number(line)
        if (incoming.length < end + 4 + length) break
        settle(incoming.slice(end + 2, end + 2 + length))
        at = end + 4 + length
        continue
      }
      at = end + 2
      if (type === '-') settle(undefined, new Error(line))
      else settle(line)
    }
    incoming = incoming.slice(at)
  })

  function flush() {
    socket.write(outgoing, 'latin1')
    outgoing = ''
  }

  return {
    /** Sends one command, and resolves with its reply. Arguments must be ASCII. */
    call(...args) {
      if (outgoing === '') queueMicrotask(flush)
      outgoing += `*${args.length}\r\n${args.map((arg) => `$${arg.length}\r\n${arg}\r\n`).join('')}`
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }))
    },
    close: () => socket.destroy(),
  }
}
