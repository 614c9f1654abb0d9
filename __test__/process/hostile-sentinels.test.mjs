// Sentinels that name thousands of others. Leases at other stores live on.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { sleep } from '../support/clock.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { holdersOf } from '../support/healthy-leases.mjs'
import { startRedis } from '../support/servers.mjs'
import { storeNames } from '../support/stores.mjs'

const PASSWORD = 'hunter2secret'
/** How many other sentinels a hostile one names. */
const MANY = 12_000
/** A host that takes long to escape and to search for the password. */
const HOST = '\u0001'.repeat(250)
/** How long a hostile sentinel keeps a connection, in ms. The client then reconnects at once. */
const KEPT = 1_100

const OTHERS = list(...['ip', HOST, 'port', '1000'].map(bulk)).repeat(MANY)

/**
 * Starts a sentinel that names the others. It also names itself under three other addresses, so
 * that the client connects to it four times. `told` is how often it has named all others.
 */
async function startHostileSentinel(t, master) {
  const sentinel = { port: 0, told: 0 }
  const itself = (number) => list(...['ip', `127.0.0.${'0'.repeat(number)}1`, 'port', `${sentinel.port}`].map(bulk))
  const answers = {
    MYID: () => '-ERR unknown\r\n',
    MASTER: () => list(...['ip', '127.0.0.1', 'port', `${master}`, 'flags', 'master', 'config-epoch', '1'].map(bulk)),
    'GET-MASTER-ADDR-BY-NAME': () => list(bulk('127.0.0.1'), bulk(`${master}`)),
    SENTINELS: (socket) => {
      setTimeout(() => socket.destroy(), KEPT).unref()
      sentinel.told++
      return `*${3 + MANY}\r\n${itself(1)}${itself(2)}${itself(3)}${OTHERS}`
    },
  }
  const SENTINEL = ([, word], socket) => answers[word.toUpperCase()](socket)
  sentinel.port = await startFakeRedis(t, { SENTINEL })
  return sentinel
}

describe('hostile sentinels', { skip: !storeNames.includes('redis'), timeout: 120_000 }, () => {
  test('no lease at another store is lost if a sentinel tells of thousands of others', async (t) => {
    const healthy = await startRedis(t)
    const master = await startRedis(t, { password: PASSWORD })
    const sentinel = await startHostileSentinel(t, master.port)
    const store = `redis-sentinel://:${PASSWORD}@127.0.0.1:${sentinel.port}/m`
    const child = startChild(t, 'memory.mjs', { store, healthy: healthy.url(), storeTimeout: 3_000 })
    await child.next('started')
    const holders = await holdersOf(t, child, healthy.url())
    for (let i = 0; i < 6; i++) {
      await child.ask('ask', {}, 60_000)
      // In this time, the client has to renew the lease at the other store.
      await sleep(1_000)
      await holders.assertHeld(`after request ${i}`)
    }
    t.diagnostic(`told ${sentinel.told} times`)
    assert.ok(sentinel.told > 4, `told ${sentinel.told} times`)
  })
})
