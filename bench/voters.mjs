// Locks over five masters with the libraries of peers.mjs that can do that. As there, each subject
// is opened in a process of its own and has `acquire(key)` and `release(held)`. `setting` describes
// its options other than the servers.
//
// A library that waits for every node needs a time-out, or it waits for a frozen one for ever. It
// gets the longest one that Redlock's own description recommends for a ttl of 10 s. A library that
// continues with a majority gets none: it does not need one here, and a timer for each command
// costs time. None of the keys is contended, so retries make no difference.
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { RELEASE } from './peers.mjs'
import { openWire } from './wire.mjs'

const require = createRequire(import.meta.url)

/** How long a lease lives, in ms. */
const TTL = 10_000

/**
 * How long a library that waits for all nodes waits for one of them, in ms. "in the ~ 5-50
 * milliseconds range"
 */
const NODE_TIMEOUT = 50

const ioredis = (ports, options = {}) => ports.map((port) => new (require('ioredis'))(port, '127.0.0.1', options))

const disconnect = (clients) => () => {
  for (const client of clients) client.disconnect()
}

/** Works for both Redlock packages, which have one interface. */
function redlock(Redlock, ports) {
  const clients = ioredis(ports)
  const locks = new Redlock(clients, { retryCount: 0 })
  return {
    acquire: (key) => locks.acquire([key], TTL),
    release: (lock) => lock.release(),
    close: disconnect(clients),
  }
}

/**
 * Resolves as soon as a majority of the replies is as wanted, and rejects when that is no longer
 * possible.
 */
function most(replies, isWanted) {
  const needed = (replies.length >> 1) + 1
  let yes = 0
  let no = 0
  return new Promise((resolve, reject) => {
    const against = (cause) => {
      if (++no > replies.length - needed) reject(new Error('too few of the masters agreed', { cause }))
    }
    for (const reply of replies) {
      reply.then((value) => {
        if (!isWanted(value)) against()
        else if (++yes === needed) resolve()
      }, against)
    }
  })
}

/** The same as in peers.mjs, over the masters at `ports`. */
export const voters = [
  {
    name: 'leasehold',
    kind: 'ours',
    setting: 'defaults',
    async open({ ports }) {
      const locks = require('..').createLockClient({
        store: ports.map((port) => `redis://127.0.0.1:${port}`),
        ttl: TTL,
      })
      await locks.ready()
      return { acquire: (key) => locks.acquire(key), release: (lease) => lease.release(), close: () => locks.close() }
    },
  },
  {
    name: 'redis-semaphore',
    kind: 'peer',
    setting: `RedlockMutex, ioredis with commandTimeout ${NODE_TIMEOUT}; without one it waits for a frozen node for ever`,
    open({ ports }) {
      const { RedlockMutex } = require('redis-semaphore')
      const clients = ioredis(ports, { commandTimeout: NODE_TIMEOUT })
      return {
        async acquire(key) {
          const mutex = new RedlockMutex(clients, key, { lockTimeout: TTL })
          await mutex.acquire()
          return mutex
        },
        release: (mutex) => mutex.release(),
        close: disconnect(clients),
      }
    },
  },
  {
    name: 'redlock',
    kind: 'peer',
    setting: 'retryCount 0, ioredis with its defaults: no time-out, as it waits only for most of the nodes',
    open: async ({ ports }) => redlock((await import('redlock')).default, ports),
  },
  {
    name: '@sesamecare-oss/redlock',
    kind: 'peer',
    setting: 'the same',
    open: ({ ports }) => redlock(require('@sesamecare-oss/redlock').Redlock, ports),
  },
  {
    name: 'redlock-universal',
    kind: 'peer',
    setting: `IoredisAdapter with timeout ${NODE_TIMEOUT}; its default is 5000`,
    async open({ ports }) {
      const { createRedlock, IoredisAdapter } = await import('redlock-universal')
      const clients = ioredis(ports)
      const adapters = clients.map((client) => new IoredisAdapter(client, { timeout: NODE_TIMEOUT }))
      return {
        async acquire(key) {
          const lock = createRedlock({ adapters, key, ttl: TTL })
          return [lock, await lock.acquire()]
        },
        release: ([lock, handle]) => lock.release(handle),
        close: disconnect(clients),
      }
    },
  },
  {
    name: 'bare socket',
    kind: 'limit',
    setting: 'SET NX PX and the release script to all five, going on with the third reply; it has no fence',
    async open({ ports }) {
      const wires = await Promise.all(ports.map(openWire))
      const [sha] = await Promise.all(wires.map((wire) => wire.call('SCRIPT', 'LOAD', RELEASE)))
      const all = (...words) => wires.map((wire) => wire.call(...words))
      return {
        async acquire(key) {
          const token = randomUUID()
          await most(all('SET', key, token, 'NX', 'PX', String(TTL)), (reply) => reply === 'OK')
          return [key, token]
        },
        release: ([key, token]) => most(all('EVALSHA', sha, '1', key, token), (reply) => reply === '1'),
        close: () => {
          for (const wire of wires) wire.close()
        },
      }
    },
  },
]

export const voting = (name) => voters.find((subject) => subject.name === name)
