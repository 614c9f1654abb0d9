// A minimal Redis client, to inspect a server without the library under test.

import { once } from 'node:events'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { tlsOptions } from './tls.mjs'

const encode = (words) =>
  `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`).join('')}`

/** Reads one RESP2 reply of `buffer` at `at`: [value, next], or null if it isn't whole yet. */
function decode(buffer, at) {
  const end = buffer.indexOf('\r\n', at)
  if (end < 0) return null
  const line = buffer.toString('utf8', at + 1, end)
  const next = end + 2
  switch (String.fromCharCode(buffer[at])) {
    case '+':
      return [line, next]
    case '-':
      return [new Error(line), next]
    case ':':
      return [Number(line), next]
    case '$': {
      const length = Number(line)
      if (length < 0) return [null, next]
      if (buffer.length < next + length + 2) return null
      return [buffer.toString('utf8', next, next + length), next + length + 2]
    }
    case '*': {
      const items = []
      let position = next
      for (let i = 0; i < Number(line); i++) {
        const item = decode(buffer, position)
        if (!item) return null
        items.push(item[0])
        position = item[1]
      }
      return [items, position]
    }
    default:
      throw new Error(`not RESP: ${buffer.toString('latin1', at, at + 40)}`)
  }
}

/**
 * Connects to `{ port }`, `{ port, tls }` (see tls.mjs) or `{ path }`. Returns a function that
 * sends one command, and rejects with the server's error.
 */
export async function openResp({ tls, ...address }, ...login) {
  const where = { host: '127.0.0.1', ...address }
  const socket = tls ? connectTls({ ...where, ...tlsOptions(tls) }) : connect(where)
  socket.setNoDelay()
  const waiting = []
  let pending = Buffer.alloc(0)
  const fail = (error) => {
    for (const { reject } of waiting.splice(0)) reject(error)
  }
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('connection closed')))
  socket.on('data', (chunk) => {
    pending = pending.length ? Buffer.concat([pending, chunk]) : chunk
    let at = 0
    for (let reply = decode(pending, at); reply; reply = at < pending.length ? decode(pending, at) : null) {
      at = reply[1]
      const { resolve, reject } = waiting.shift()
      if (reply[0] instanceof Error) reject(reply[0])
      else resolve(reply[0])
    }
    pending = pending.subarray(at)
  })
  await once(socket, tls ? 'secureConnect' : 'connect')
  const command = (...words) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject })
      socket.write(encode(words))
    })
  command.close = () => socket.destroy()
  if (login.length) await command('AUTH', ...login)
  return command
}

/** Returns all keys of the server with their remaining ms, as [key, pttl] (-1: never expires). */
export async function keysWithTtl(command) {
  const found = []
  let cursor = '0'
  do {
    const [next, keys] = await command('SCAN', cursor, 'COUNT', 1000)
    cursor = next
    const ttls = await Promise.all(keys.map((key) => command('PTTL', key)))
    found.push(...keys.map((key, i) => [key, ttls[i]]))
  } while (cursor !== '0')
  return found
}
