// The claims of docs/migrating.md: leasehold and these libraries exclude each other, with these
// prefixes.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { haveLibraries } from '../../bench/libraries.mjs'
import { within } from '../support/clock.mjs'
import { ROOT } from '../support/docs/page.mjs'
import { atEnd } from '../support/endings.mjs'
import { startMasters } from '../support/masters.mjs'
import { startRedis } from '../support/servers.mjs'

haveLibraries()
const require = createRequire(join(ROOT, 'bench', 'package.json'))
const Redis = require('ioredis')
const TTL = 30_000

function connect(t, port) {
  const redis = new Redis(port, '127.0.0.1')
  atEnd(t, () => redis.disconnect())
  return redis
}

/**
 * The prefix of each library, and `opened()`, which returns a function that tries to lock `job`.
 * This resolves with a function that releases the lock, or with null if the lock is held.
 */
const LIBRARIES = {
  redlock: {
    prefix: '',
    opened(redis) {
      const { default: Redlock } = require('redlock')
      return redlock(new Redlock([redis].flat(), { retryCount: 0 }), 'job')
    },
  },
  '@sesamecare-oss/redlock': {
    prefix: 'lock:',
    opened(redis) {
      const { Redlock } = require('@sesamecare-oss/redlock')
      return redlock(new Redlock([redis], { retryCount: 0 }), 'lock:job')
    },
  },
  'redlock-universal': {
    prefix: '',
    opened(redis) {
      const { createLock, IoredisAdapter, LockAcquisitionError } = require('redlock-universal')
      const adapter = new IoredisAdapter(redis)
      return async () => {
        const lock = createLock({ adapter, key: 'job', ttl: TTL, retryAttempts: 0 })
        const handle = await lock.acquire().catch(unlessRefused(LockAcquisitionError.name))
        return handle && (() => lock.release(handle))
      }
    },
  },
  'redis-semaphore': {
    prefix: 'mutex:',
    opened(redis) {
      const { Mutex, RedlockMutex } = require('redis-semaphore')
      const options = { lockTimeout: TTL, acquireAttemptsLimit: 1 }
      return async () => {
        const mutex = new (Array.isArray(redis) ? RedlockMutex : Mutex)(redis, 'job', options)
        return (await mutex.tryAcquire()) ? () => mutex.release() : null
      }
    },
  },
  'simple-redis-mutex': {
    prefix: '@simple-redis-mutex:lock-',
    async opened(_, t, server) {
      const { tryLock } = require('simple-redis-mutex')
      const redis = require('redis').createClient({ url: server.url() })
      const duplicate = redis.duplicate.bind(redis)
      let listener
      redis.duplicate = () => {
        listener = duplicate()
        return listener
      }
      await redis.connect()
      atEnd(t, async () => {
        // The library closes its own connection after ours, and does not report when that is done.
        const ended = once(listener, 'end')
        await redis.close()
        await ended
      })
      return async () => {
        const [isHeld, release] = await tryLock(redis, 'job', { timeout: TTL })
        return isHeld ? release : null
      }
    },
  },
}

const unlessRefused = (name) => (error) => {
  if (error.name !== name) throw error
  return null
}

const redlock = (redlock, key) => async () => {
  const lock = await redlock.acquire([key], TTL).catch(unlessRefused('ExecutionError'))
  return lock && (() => lock.release())
}

/** Asserts that the library and leasehold exclude each other. */
async function assertExclusion(locks, tryLock) {
  const lease = await locks.acquire('job')
  assert.equal(await tryLock(), null, 'leasehold holds the lock')
  await lease.release()
  const release = await tryLock()
  assert.equal(typeof release, 'function', 'leasehold has released the lock')
  assert.equal(await locks.tryAcquire('job'), null, 'the other library holds the lock')
  const waiting = locks.acquire('job', { wait: TTL })
  await release()
  const next = await within('the lock after its release', waiting, 5_000)
  assert.ok(next.fence > lease.fence)
  await next.release()
}

describe('other libraries on the same key', { timeout: 120_000 }, () => {
  for (const [name, { prefix, opened }] of Object.entries(LIBRARIES)) {
    test(`${name} and leasehold exclude each other with the prefix '${prefix}'`, async (t) => {
      const server = await startRedis(t)
      const locks = createLockClient({ store: server.url(), prefix })
      atEnd(t, () => locks.close())
      await assertExclusion(locks, await opened(connect(t, server.port), t, server))
      assert.equal(await locks.tryAcquire('other').then((lease) => lease.release()), true)
    })
  }

  for (const name of ['redlock', 'redis-semaphore']) {
    test(`${name} and leasehold exclude each other on a quorum of three servers`, async (t) => {
      const servers = (await startMasters(t, 3)).map(({ server }) => server)
      const { prefix, opened } = LIBRARIES[name]
      const locks = createLockClient({ store: servers.map((server) => server.url()), prefix })
      atEnd(t, () => locks.close())
      const connections = servers.map((server) => connect(t, server.port))
      await assertExclusion(locks, await opened(connections, t))
    })
  }

  for (const [name, database] of [
    ['redlock', 2],
    ['redis-semaphore', 2],
    ['@sesamecare-oss/redlock', 0],
  ]) {
    test(`${name} with keyPrefix and db 2 of ioredis locks in database ${database}`, async (t) => {
      const server = await startRedis(t)
      const redis = new Redis({ port: server.port, host: '127.0.0.1', keyPrefix: 'app:', db: 2 })
      atEnd(t, () => redis.disconnect())
      const { prefix, opened } = LIBRARIES[name]
      const tryLock = await opened(redis)
      const lockIn = (database, prefix) => {
        const locks = createLockClient({ store: `${server.url()}/${database}`, prefix })
        atEnd(t, () => locks.close())
        return locks
      }
      await assertExclusion(lockIn(database, `app:${prefix}`), tryLock)
      const release = await tryLock()
      assert.ok(await lockIn(2 - database, `app:${prefix}`).tryAcquire('job'), 'the other database')
      assert.ok(await lockIn(database, prefix).tryAcquire('job'), 'without the keyPrefix of ioredis')
      await release()
    })
  }

  test('with another prefix, leasehold and the library do not exclude each other', async (t) => {
    const server = await startRedis(t)
    const locks = createLockClient(server.url())
    atEnd(t, () => locks.close())
    const tryLock = await LIBRARIES['redis-semaphore'].opened(connect(t, server.port), t)
    await locks.acquire('job')
    await (await tryLock())()
  })

  test('the guide names the versions that were checked, and their prefixes', () => {
    const guide = readFileSync(join(ROOT, 'docs', 'migrating.md'), 'utf8')
    for (const [name, { prefix }] of Object.entries(LIBRARIES)) {
      const manifest = readFileSync(join(ROOT, 'bench', 'node_modules', name, 'package.json'), 'utf8')
      const version = JSON.parse(manifest).version.replace(/^v/, '')
      const row = guide.split('\n').find((line) => line.startsWith(`| ${name}`) && line.includes(`${version} |`))
      assert.ok(row, `${name} ${version} is in no row`)
      assert.ok(row.includes(`\`'${prefix}'\``) || row.includes('as redlock'), row)
    }
  })
})
