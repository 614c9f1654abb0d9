// What inspect(), list() and the command line tell about a lease over a quorum: at how many servers
// it stands, also if some servers are farther away than others, silent, or gone.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import * as cli from '../support/cli.mjs'
import { timed, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis } from '../support/servers.mjs'

const KEY = 'k'
const LOOKS = 20
const STORE_TIMEOUT = 1_000

/**
 * Starts five servers with a lease at all of them, and a client that reaches each of them through a
 * relay: { servers, relays, urls, locks }.
 */
async function startHeld(t) {
  const servers = await Promise.all([1, 2, 3, 4, 5].map(() => startRedis(t)))
  const holder = createLockClient({ store: servers.map((server) => server.url()), ttl: 60_000 })
  atEnd(t, () => holder.close())
  await holder.acquire(KEY)
  const exists = (server) => server.ask('EXISTS', `lock:${KEY}`)
  await until('the lease to be at all servers', async () => (await Promise.all(servers.map(exists))).every(Boolean))
  const relays = await Promise.all(servers.map(({ port }) => startRelay(t, port)))
  const urls = relays.map(({ port }) => `redis://127.0.0.1:${port}`)
  const locks = createLockClient({ store: urls, storeTimeout: STORE_TIMEOUT })
  atEnd(t, () => locks.close())
  await locks.ready()
  return { servers, relays, urls, locks }
}

/** Returns what inspect() and list() tell about the servers, several times. */
async function looks(locks) {
  const told = []
  for (let i = 0; i < LOOKS; i++) {
    told.push((await locks.inspect(KEY)).servers)
    told.push((await locks.list()).locks[0].servers)
  }
  return told
}

describe('process: what a quorum tells about a lease', { timeout: 120_000 }, () => {
  for (const ms of [5, 30]) {
    test(`servers that are ${ms} ms farther away count, too`, async (t) => {
      const { relays, urls, locks } = await startHeld(t)
      for (const relay of relays.slice(3)) relay.slow(ms)
      const told = await looks(locks)
      // On a busy machine, a server may really answer too late.
      const counted = told.filter(({ held, unheard = 0 }) => held + unheard === 5)
      assert.deepEqual(counted, told, 'no server that did not answer counts as one without the lease')
      const complete = told.filter(({ held }) => held === 5)
      assert.ok(complete.length > told.length / 2, JSON.stringify(told))
      await until('the command line to count all servers', async () => {
        const { stdout } = await cli.run(t, ['inspect', KEY, ...urls.flatMap((url) => ['--store', url])])
        return stdout.includes(', at 5 of 5 servers\n')
      })
    })
  }

  test('a server that does not answer is told as such, and soon costs no time any more', async (t) => {
    const { relays, urls, locks } = await startHeld(t)
    relays[4].bar()
    const { ms, value } = await timed(() => locks.inspect(KEY))
    assert.deepEqual(value.servers, { held: 4, total: 5, unheard: 1 })
    assert.ok(ms < STORE_TIMEOUT + 500, `${ms} ms`)
    const shown = await cli.run(t, ['inspect', KEY, ...urls.flatMap((url) => ['--store', url])])
    assert.match(shown.stdout, /, at 4 of 5 servers \(1 did not answer\)\n/)
    await until('the breaker to open', async () => {
      await locks.inspect(KEY)
      return locks.stats().stores[4].state === 'open'
    })
    const quick = await timed(() => looks(locks))
    assert.ok(quick.ms < STORE_TIMEOUT, `nobody waits for a server that is known to be away: ${quick.ms} ms`)
  })

  test('inspect() and list() hold up no other call', async (t) => {
    const { relays, locks } = await startHeld(t)
    relays[4].bar()
    const inspected = locks.inspect(KEY)
    const listed = locks.list()
    const lease = await locks.acquire('another')
    const first = await Promise.race([inspected, listed, 'the acquire'])
    assert.equal(first, 'the acquire')
    assert.deepEqual((await inspected).servers, { held: 4, total: 5, unheard: 1 })
    assert.ok((await listed).locks.some(({ key }) => key === KEY))
    await lease.release()
  })
})
