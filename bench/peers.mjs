// The subjects that are measured. Each is opened in a process of its own and has two functions:
// `acquire(key)` resolves with the argument of `release(held)`.
//
// Each peer gets the settings that make it fast: no retries, one connection, its own documented
// calls.
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { openWire } from './wire.mjs'

const require = createRequire(import.meta.url)

/** How long a lease lives, in ms. No pair of the benchmark takes nearly that long. */
const TTL = 10_000

/** The usual script that releases a lock only for its owner. */
export const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`

const ioredis = (port) => new (require('ioredis'))(port, '127.0.0.1')

async function nodeRedis(port) {
  const client = require('redis').createClient({ url: `redis://127.0.0.1:${port}` })
  await client.connect()
  return client
}

function leasehold(store) {
  const { createLockClient } = require('..')
  const locks = createLockClient({ store, ttl: TTL })
  return { acquire: (key) => locks.acquire(key), release: (lease) => lease.release(), close: () => locks.close() }
}

/**
 * The subjects, in the table's order. The `kind` of a row:
 * `ours`  the row of the budgets,
 * `info`  leasehold without a server, for information,
 * `peer`  another lock library,
 * `raw`   the same two commands without a lock library: no lock through that client can be faster,
 * `limit` the same on a bare socket: the limit of the network and the server.
 */
export const subjects = [
  {
    name: 'leasehold',
    kind: 'ours',
    open: ({ port }) => leasehold(`redis://127.0.0.1:${port}`),
  },
  {
    name: 'redis-semaphore',
    kind: 'peer',
    open({ port }) {
      const { Mutex } = require('redis-semaphore')
      const redis = ioredis(port)
      return {
        async acquire(key) {
          const mutex = new Mutex(redis, key, { lockTimeout: TTL })
          await mutex.acquire()
          return mutex
        },
        release: (mutex) => mutex.release(),
        close: () => redis.disconnect(),
      }
    },
  },
  {
    name: 'redlock',
    kind: 'peer',
    async open({ port }) {
      const { default: Redlock } = await import('redlock')
      const redis = ioredis(port)
      const locks = new Redlock([redis], { retryCount: 0 })
      return {
        acquire: (key) => locks.acquire([key], TTL),
        release: (lock) => lock.release(),
        close: () => redis.disconnect(),
      }
    },
  },
  {
    name: '@sesamecare-oss/redlock',
    kind: 'peer',
    open({ port }) {
      const { Redlock } = require('@sesamecare-oss/redlock')
      const redis = ioredis(port)
      const locks = new Redlock([redis], { retryCount: 0 })
      return {
        acquire: (key) => locks.acquire([key], TTL),
        release: (lock) => lock.release(),
        close: () => redis.disconnect(),
      }
    },
  },
  {
    name: 'simple-redis-mutex',
    kind: 'peer',
    async open({ port }) {
      const { tryLock } = require('simple-redis-mutex')
      const redis = await nodeRedis(port)
      return {
        async acquire(key) {
          const [held, release] = await tryLock(redis, key, { timeout: TTL })
          if (!held) throw new Error(`${key} is held by another client`)
          return release
        },
        release: (release) => release(),
        close: () => redis.destroy(),
      }
    },
  },
  {
    name: 'redlock-universal',
    kind: 'peer',
    async open({ port }) {
      const { createLock, IoredisAdapter } = await import('redlock-universal')
      const redis = ioredis(port)
      const adapter = new IoredisAdapter(redis)
      return {
        async acquire(key) {
          const lock = createLock({ adapter, key, ttl: TTL, retryAttempts: 0 })
          return [lock, await lock.acquire()]
        },
        release: ([lock, handle]) => lock.release(handle),
        close: () => redis.disconnect(),
      }
    },
  },
  {
    name: 'raw ioredis',
    kind: 'raw',
    open({ port }) {
      const redis = ioredis(port)
      redis.defineCommand('unlock', { numberOfKeys: 1, lua: RELEASE })
      return {
        async acquire(key) {
          const token = randomUUID()
          await redis.set(key, token, 'PX', TTL, 'NX')
          return [key, token]
        },
        release: ([key, token]) => redis.unlock(key, token),
        close: () => redis.disconnect(),
      }
    },
  },
  {
    name: 'raw node-redis',
    kind: 'raw',
    async open({ port }) {
      const redis = await nodeRedis(port)
      const sha = await redis.scriptLoad(RELEASE)
      return {
        async acquire(key) {
          const token = randomUUID()
          await redis.set(key, token, { NX: true, PX: TTL })
          return [key, token]
        },
        release: ([key, token]) => redis.evalSha(sha, { keys: [key], arguments: [token] }),
        close: () => redis.destroy(),
      }
    },
  },
  {
    name: 'bare socket',
    kind: 'limit',
    async open({ port }) {
      const wire = await openWire(port)
      const sha = await wire.call('SCRIPT', 'LOAD', RELEASE)
      return {
        async acquire(key) {
          const token = randomUUID()
          await wire.call('SET', key, token, 'NX', 'PX', String(TTL))
          return [key, token]
        },
        release: ([key, token]) => wire.call('EVALSHA', sha, '1', key, token),
        close: () => wire.close(),
      }
    },
  },
  {
    name: 'bare socket, 2 × PING',
    kind: 'limit',
    async open({ port }) {
      const wire = await openWire(port)
      return { acquire: () => wire.call('PING'), release: () => wire.call('PING'), close: () => wire.close() }
    },
  },
  {
    name: 'leasehold, sqlite:',
    kind: 'info',
    open: ({ directory }) => leasehold(`sqlite:${directory}/bench-${process.pid}.db`),
  },
  {
    name: 'leasehold, memory:',
    kind: 'info',
    open: () => leasehold('memory:bench'),
  },
]
