// Real clients of ioredis and node-redis instead of a store: the message has the URL to give
// instead, and a client with that URL works. behaviour/store-mistakes.test.mjs has all shapes.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { haveLibraries } from '../../bench/libraries.mjs'
import { ROOT } from '../support/docs/page.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis } from '../support/servers.mjs'

haveLibraries()
const require = createRequire(join(ROOT, 'bench', 'package.json'))
const Redis = require('ioredis')
const redis = require('redis')

const PASSWORD = 'hunter2'
const USER = { name: 'app', password: PASSWORD, rules: '~* &* +@all' }

/**
 * Returns the messages about a client in each place of a store. Checks that no error has the
 * password.
 */
function messagesOf(client) {
  return [client, { store: client }, [client, client, client]].map((given) => {
    let message
    assert.throws(
      () => createLockClient(given),
      (error) => {
        message = error.message
        return error.code === 'ERR_INVALID_ARG_TYPE' && !error.stack.includes(PASSWORD)
      },
    )
    return message
  })
}

const urlIn = (message) => /'(redis.*?)'/.exec(message)?.[1]

describe('a client of another library', { timeout: 60_000 }, () => {
  for (const [what, connect] of [
    ['ioredis', (port) => new Redis(`redis://app:${PASSWORD}@127.0.0.1:${port}/2`)],
    [
      'node-redis',
      async (port) => redis.createClient({ url: `redis://app:${PASSWORD}@127.0.0.1:${port}/2` }).connect(),
    ],
  ]) {
    test(`${what}: the URL in the message about a connected client works`, async (t) => {
      const server = await startRedis(t, { user: USER })
      const client = await connect(server.port)
      atEnd(t, () => client.quit())
      await client.set('there', '1')
      const messages = messagesOf(client)
      for (const message of messages) {
        assert.match(message, new RegExp(`Received a client of ${what}\\.`))
        assert.equal(urlIn(message), `redis://app:<password>@127.0.0.1:${server.port}/2`)
      }
      const locks = createLockClient(urlIn(messages[0]).replace('<password>', PASSWORD))
      atEnd(t, () => locks.close())
      await locks.acquire('k')
      assert.equal(await client.exists('lock:k'), 1, 'the lock is in the same database')
    })
  }

  const lazy = { lazyConnect: true }
  const sentinels = { sentinels: [{ host: 'a', port: 26379 }, { host: 'b' }], name: 'mymaster', password: PASSWORD }
  for (const [what, make, named, url] of [
    [
      'ioredis, sentinels',
      () => new Redis({ ...sentinels, ...lazy }),
      'a client of ioredis',
      'redis-sentinel://:<password>@a:26379,b:26379/mymaster',
    ],
    ['ioredis, a socket', () => new Redis('/run/r.sock', lazy), 'a client of ioredis', 'redis+unix:///run/r.sock'],
    [
      'ioredis, a cluster',
      () => new Redis.Cluster([{ host: 'a', port: 7000 }, 7001], { ...lazy, redisOptions: { password: PASSWORD } }),
      'a cluster client of ioredis',
      'redis-cluster://:<password>@a:7000,localhost:7001',
    ],
    ['node-redis', () => redis.createClient(), 'a client of node-redis', 'redis://localhost:6379'],
    [
      'node-redis, tls',
      () => redis.createClient({ socket: { host: 'h', port: 6380, tls: true }, password: PASSWORD, database: 3 }),
      'a client of node-redis',
      'rediss://:<password>@h:6380/3',
    ],
    [
      'node-redis, a cluster',
      () =>
        redis.createCluster({
          rootNodes: [{ url: `redis://:${PASSWORD}@a:7000` }, { socket: { host: 'b', port: 7001 } }],
        }),
      'a cluster client of node-redis',
      'redis-cluster://:<password>@a:7000,b:7001',
    ],
    [
      'node-redis, a pool',
      () => redis.createClientPool({ url: `redis://:${PASSWORD}@h` }),
      'a client pool of node-redis',
      'redis://HOST:6379',
    ],
    [
      'node-redis, sentinels',
      () => redis.createSentinel({ name: 'm', sentinelRootNodes: [{ host: 'a', port: 26379 }] }),
      'a sentinel client of node-redis',
      'redis-sentinel://HOST:26379/MASTER',
    ],
  ]) {
    test(`${what}: the message has the URL`, () => {
      for (const message of messagesOf(make())) {
        assert.ok(message.includes(`Received ${named}.`), message)
        assert.equal(urlIn(message), url)
      }
    })
  }
})
