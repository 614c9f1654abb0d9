// A server that speaks the Redis protocol and gives the replies that a test chooses.

import { startTcp } from './servers.mjs'

const INFO = 'redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\nloading:0\r\nrun_id:fa4e\r\n'

/** Encodes a string of any characters. */
export const bulk = (text) => `$${Buffer.byteLength(text)}\r\n${text}\r\n`

/** Encodes a list of values that are encoded already. */
export const list = (...values) => `*${values.length}\r\n${values.join('')}`

/** The replies of a lock server to the first commands of a connection. */
const USUAL = {
  HELLO: () => `%1\r\n${bulk('proto')}:3\r\n`,
  CLIENT: () => '+OK\r\n',
  INFO: () => bulk(INFO),
  SCRIPT: () => bulk('0'.repeat(40)),
  EVALSHA: () => '*0\r\n',
  PUBLISH: () => ':0\r\n',
  SUBSCRIBE: ([, channel]) => `>3\r\n${bulk('subscribe')}${bulk(channel)}:1\r\n`,
  PING: () => '+PONG\r\n',
  ROLE: () => list(bulk('master'), ':0\r\n', list()),
  TIME: () => list(bulk(String(Math.floor(Date.now() / 1_000))), bulk('0')),
  CONFIG: ([, , name]) => `%1\r\n${bulk(name)}${bulk('')}`,
}

/** Splits a client's bytes into commands. Returns [words, the rest]. */
function commandsIn(text) {
  const commands = []
  let at = 0
  for (;;) {
    const head = /\*(\d+)\r\n/y
    head.lastIndex = at
    const found = head.exec(text)
    if (!found) break
    let place = head.lastIndex
    const words = []
    while (words.length < Number(found[1])) {
      const length = /\$(\d+)\r\n/y
      length.lastIndex = place
      const told = length.exec(text)
      const end = length.lastIndex + Number(told?.[1])
      if (!told || text.length < end + 2) return [commands, text.slice(at)]
      words.push(text.slice(length.lastIndex, end))
      place = end + 2
    }
    commands.push(words)
    at = place
  }
  return [commands, text.slice(at)]
}

/**
 * Starts the server. `says` has a function for each command that this server answers in its own
 * way. The function gets the words and the socket. It returns the encoded reply, or undefined for
 * the usual reply. Returns the port.
 */
export function startFakeRedis(t, says) {
  return startTcp(t, (socket) => {
    let rest = ''
    socket.on('data', (chunk) => {
      const [commands, left] = commandsIn(rest + chunk.toString('latin1'))
      rest = left
      for (const words of commands) {
        const name = words[0].toUpperCase()
        const reply = says[name]?.(words, socket) ?? USUAL[name]?.(words) ?? `-ERR unknown command '${name}'\r\n`
        socket.write(reply)
      }
    })
  })
}
