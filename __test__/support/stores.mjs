// The stores over which the behaviour suite runs: all of them must behave in the same way.

import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { after, before, describe } from 'node:test'
import { createLockClient } from 'leasehold'
import { startCluster } from './cluster.mjs'
import { atEnd } from './endings.mjs'
import { startRedis, temporaryFolder } from './servers.mjs'

/** Each function opens a store and returns its URL. `t` has an `after`. */
const STORES = {
  memory: () => `memory:${randomUUID()}`,
  sqlite: (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`,
  redis: async (t) => (await startRedis(t)).url(),
  'redis-cluster': async (t) => (await startCluster(t, { replicas: false })).url(),
}

const given = process.env.LEASEHOLD_TEST_STORES?.split(',')

/** The names of all stores, or those in LEASEHOLD_TEST_STORES, such as memory,redis. */
export const allStoreNames = given ?? Object.keys(STORES)

/**
 * The same names without the cluster, unless it is requested: most tests show the same with a
 * cluster as with one Redis.
 */
export const storeNames = given ?? allStoreNames.filter((name) => name !== 'redis-cluster')

/** The stores that several processes can share. */
export const sharedStoreNames = storeNames.filter((name) => name !== 'memory')

/**
 * The stores for tests of many processes. These tests are about the processes, so one store is
 * enough. With `--long`, they run on all stores that processes can share.
 */
export const processStoreNames = process.env.LEASEHOLD_TEST_LONG ? sharedStoreNames : sharedStoreNames.slice(0, 1)

export const openStore = (name, t) => STORES[name](t)

/**
 * Runs `define(store)` as one suite per store. In a test, `store.client(t, options)` returns a new
 * client of the suite's store, which is closed after the test, and `store.key()` returns a new key.
 * `options` are those of the suite, such as its `concurrency`.
 */
export function overStores(title, define, names = storeNames, options = {}) {
  for (const name of names) {
    describe(`${title}: ${name}`, { timeout: 240_000, ...options }, () => {
      const endings = []
      const store = {
        name,
        url: undefined,
        key: () => `key-${randomUUID()}`,
        client(t, options = {}) {
          const client = createLockClient({ store: store.url, ...options })
          atEnd(t, () => client.close())
          return client
        },
      }
      before(async () => {
        store.url = await openStore(name, { after: (ending) => endings.push(ending) })
      })
      after(async () => {
        for (const ending of endings.reverse()) await ending()
      })
      define(store)
    })
  }
}
