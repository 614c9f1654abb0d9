// list() of many locks with many waiters. The client sends several requests, so that each reply
// fits into the memory limit of a connection.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { storeNames } from '../support/stores.mjs'

const LOCKS = 3_000
const WAITERS = list(...Array(60).fill(list(':1000000\r\n', bulk('0'), bulk('waiter'))))
const LEASE = list(':5000\r\n', bulk('holder'), ':1784000000000000\r\n', bulk('0123abcd'))
const SCANNED = list(bulk('0'), list(...Array.from({ length: LOCKS }, (_, i) => bulk(`lock:${i}`))))

/** Starts a server on which every lock has a holder and waiters. */
function startCrowded(t, more) {
  return startFakeRedis(t, {
    SCAN: () => SCANNED,
    // Each lock has two keys in the call: its own and that of its fence.
    EVALSHA: ([, , keys]) => {
      const locks = Number(keys) / 2
      return locks > 0 ? list(...Array(locks).fill(list(':0\r\n', list(LEASE), WAITERS))) : undefined
    },
    ...more,
  })
}

async function listAll(t, store) {
  const locks = createLockClient({ store, storeTimeout: 60_000 })
  atEnd(t, () => locks.close())
  return locks.list({ limit: 10_000 })
}

describe('big lists', { skip: !storeNames.includes('redis'), timeout: 240_000 }, () => {
  test('the list of one server is complete', async (t) => {
    const { locks, complete } = await listAll(t, `redis://127.0.0.1:${await startCrowded(t)}`)
    assert.deepEqual([locks.length, complete, locks[0].waiters.length], [LOCKS, true, 60])
  })

  test('the list of a cluster is complete', async (t) => {
    let port = 0
    port = await startCrowded(t, {
      INFO: () => bulk('redis_version:7.0.15\r\nredis_mode:cluster\r\nrole:master\r\n'),
      CLUSTER: () => list(list(':0\r\n', ':16383\r\n', list(bulk('127.0.0.1'), `:${port}\r\n`))),
    })
    const { locks, complete } = await listAll(t, `redis-cluster://127.0.0.1:${port}`)
    assert.deepEqual([locks.length, complete, locks[0].waiters.length], [LOCKS, true, 60])
  })
})
