// Measures how each library waits for a held lock: with its own method and its own defaults, for as
// long as it takes.
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)

const TTL = 10_000
const KEY = 'contended'
const FOR_EVER = 600_000

const ioredis = (port) => new (require('ioredis'))(port, '127.0.0.1')

async function leasehold(store) {
  const locks = require('..').createLockClient({ store, ttl: TTL, wait: FOR_EVER })
  await locks.ready()
  return { acquire: () => locks.acquire(KEY), release: (lease) => lease.release(), close: () => locks.close() }
}

/** Works for both Redlock packages, which have one interface. */
function redlock(Redlock, port) {
  const redis = ioredis(port)
  const locks = new Redlock([redis], { retryCount: -1 })
  return {
    acquire: () => locks.acquire([KEY], TTL),
    release: (lock) => lock.release(),
    close: () => redis.disconnect(),
  }
}

/**
 * The same as in peers.mjs. `commands` are the commands that a client sends. Commands that scripts
 * call within the server do not count.
 */
const subjects = [
  {
    name: 'leasehold',
    kind: 'ours',
    commands: ['evalsha'],
    open: ({ port }) => leasehold(`redis://127.0.0.1:${port}`),
  },
  {
    name: 'leasehold, sqlite:',
    kind: 'info',
    commands: [],
    open: ({ directory }) => leasehold(`sqlite:${directory}/contended.db`),
  },
  {
    name: 'redis-semaphore',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval'],
    open({ port }) {
      const { Mutex } = require('redis-semaphore')
      const redis = ioredis(port)
      return {
        async acquire() {
          const mutex = new Mutex(redis, KEY, { lockTimeout: TTL, acquireTimeout: FOR_EVER })
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
    commands: ['evalsha', 'eval'],
    open: async ({ port }) => redlock((await import('redlock')).default, port),
  },
  {
    name: '@sesamecare-oss/redlock',
    kind: 'peer',
    commands: ['evalsha', 'eval'],
    open: ({ port }) => redlock(require('@sesamecare-oss/redlock').Redlock, port),
  },
  {
    name: 'simple-redis-mutex',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval'],
    async open({ port }) {
      const { lock } = require('simple-redis-mutex')
      const redis = require('redis').createClient({ url: `redis://127.0.0.1:${port}` })
      await redis.connect()
      return {
        acquire: () => lock(redis, KEY, { timeout: TTL }),
        release: (release) => release(),
        close: () => process.exit(), // Its subscription can't be closed.
      }
    },
  },
  {
    name: 'redlock-universal',
    kind: 'peer',
    commands: ['set', 'evalsha', 'eval'],
    async open({ port }) {
      const { createLock, IoredisAdapter } = await import('redlock-universal')
      const redis = ioredis(port)
      const adapter = new IoredisAdapter(redis)
      return {
        async acquire() {
          const lock = createLock({ adapter, key: KEY, ttl: TTL, retryAttempts: 10_000 })
          return [lock, await lock.acquire()]
        },
        release: ([lock, handle]) => lock.release(handle),
        close: () => redis.disconnect(),
      }
    },
  },
]

export const waiters = subjects

export const waiting = (name) => subjects.find((subject) => subject.name === name)
