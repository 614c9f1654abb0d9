// A relay in front of a server: the network between, which can be slow, deaf, mute, or cut. It also
// records when each request passed and which of them were answered, so that a test need not trust
// the library's own clock.

import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { now } from './clock.mjs'
import { atEnd } from './endings.mjs'
import { freePort } from './ports.mjs'

/** The bytes that pass in one direction of one connection, in order. */
class Lane {
  #from
  #to
  #way
  #waiting = []
  #last = 0
  #timer

  constructor(from, to, way, passed) {
    this.#from = from
    this.#to = to
    this.#way = way
    from.on('data', (chunk) => this.#push(() => to.write(chunk), passed(chunk)))
    // The end of the connection is sent after all earlier bytes, so a server sees the last request
    // first.
    from.on('close', () => this.#push(() => to.destroySoon()))
  }

  #push(deliver, delivered) {
    this.#waiting.push({ deliver, delivered, due: Math.max(this.#last, now() + this.#way.delay()) })
    this.#last = this.#waiting.at(-1).due
    this.pump()
  }

  /** Sends the bytes that are due, unless this direction is barred. */
  pump() {
    clearTimeout(this.#timer)
    while (!this.#way.barred && this.#waiting.length && this.#waiting[0].due <= now()) {
      const { deliver, delivered } = this.#waiting.shift()
      delivered?.()
      deliver()
    }
    if (this.#way.barred || !this.#waiting.length) return
    this.#timer = setTimeout(() => this.pump(), Math.max(1, this.#waiting[0].due - now()))
  }

  /** Sends all waiting bytes, due or not. */
  hurry() {
    for (const each of this.#waiting) each.due = 0
    this.#last = 0
    this.pump()
  }

  stop() {
    clearTimeout(this.#timer)
    this.#waiting = []
    this.#from.destroy()
    this.#to.destroy()
  }
}

/** The names of the directions that a test can choose. By default, it gets both. */
const DIRECTIONS = ['toServer', 'toClient']

class Relay {
  #server
  #upstream
  #ways = Object.fromEntries(DIRECTIONS.map((name) => [name, { barred: false, delay: () => 0 }]))
  #lanes = new Set()
  #connections = new Set()
  port = 0
  /** When the newest answered request passed. The client sent it no later than that. */
  sent = 0

  constructor(upstream) {
    this.#upstream = upstream
    this.#server = createServer((client) => this.#connect(client))
  }

  async listen() {
    this.port ||= await freePort()
    this.#server.listen(this.port, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  #connect(client) {
    const server = connect({ host: '127.0.0.1', port: this.#upstream })
    const connection = [client, server]
    this.#connections.add(connection)
    let asked = 0
    const lanes = [
      new Lane(client, server, this.#ways.toServer, () => {
        asked = now()
      }),
      new Lane(server, client, this.#ways.toClient, () => {
        const answered = asked
        return () => {
          this.sent = answered
        }
      }),
    ]
    for (const lane of lanes) this.#lanes.add(lane)
    for (const socket of connection) {
      socket.setNoDelay()
      socket.on('error', () => {})
      socket.on('close', () => {
        if (!connection.every((each) => each.closed)) return
        this.#connections.delete(connection)
        for (const lane of lanes) this.#lanes.delete(lane)
      })
    }
  }

  /** Returns the number of connections. */
  get connections() {
    return this.#connections.size
  }

  /**
   * Delays each byte by `ms`, and by up to `jitter` ms more by `random`, in the direction
   * 'toServer' or 'toClient', or in both.
   */
  slow(ms, { jitter = 0, random = Math.random, directions = DIRECTIONS } = {}) {
    for (const name of directions) this.#ways[name].delay = () => ms + jitter * random()
  }

  /** Stops all bytes without an error. Bytes on the way arrive after the heal, as with TCP. */
  bar(directions = DIRECTIONS) {
    for (const name of directions) this.#ways[name].barred = true
  }

  /** Ends all connections. With 'RST', both ends get an error; with 'FIN', they get an end. */
  cut(how = 'RST') {
    for (const connection of this.#connections) {
      for (const socket of connection) {
        if (how === 'RST') socket.resetAndDestroy()
        else socket.end()
      }
    }
  }

  /** Refuses new connections. Existing connections stay. */
  refuse() {
    this.#server.close()
  }

  /** Lets everything pass again. */
  async heal() {
    for (const way of Object.values(this.#ways)) Object.assign(way, { barred: false, delay: () => 0 })
    for (const lane of this.#lanes) lane.hurry()
    if (!this.#server.listening) await this.listen()
  }

  close() {
    for (const lane of this.#lanes) lane.stop()
    this.#server.close()
  }
}

/** Starts a relay to 127.0.0.1:`port` that ends with the test. */
export async function startRelay(t, port) {
  const relay = new Relay(port)
  await relay.listen()
  atEnd(t, () => relay.close())
  return relay
}
