// Tests what inspect(), list() and the command line report about a lease of a quorum: how many
// servers have it, even if some servers are farther away than others, or do not answer.

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

/** Calls inspect() and list() several times. Returns what they report about the servers. */
async function looks(locks) {
  const counts = []
  for (let i = 0; i < LOOKS; i++) {
    counts.push((await locks.inspect(KEY)).servers)
    counts.push((await locks.list()).locks[0].servers)
  }
  return counts
}

describe('process: reports of a quorum about a lease', { timeout: 120_000 }, () => {
  for (const ms of [5, 30]) {
    test(`the reports count servers that are ${ms} ms farther away, too`, async (t) => {
      const { relays, urls, locks } = await startHeld(t)
      for (const relay of relays.slice(3)) relay.slow(ms)
      const counts = await looks(locks)
      // On a busy machine, a server may really answer too late.
      const counted = counts.filter(({ held, unheard = 0 }) => held + unheard === 5)
      assert.deepEqual(counted, counts, 'a server that did not answer does not count as one without the lease')
      const complete = counts.filter(({ held }) => held === 5)
      assert.ok(complete.length > counts.length / 2, JSON.stringify(counts))
      await until('the command line to count all servers', async () => {
        const { stdout } = await cli.run(t, ['inspect', KEY, ...urls.flatMap((url) => ['--store', url])])
        return stdout.includes(', at 5 of 5 servers\n')
      })
    })
  }

  test('a server that does not answer is reported, and soon the calls no longer wait for it', async (t) => {
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
    assert.ok(quick.ms < STORE_TIMEOUT, `the calls do not wait for a server that is known to be away: ${quick.ms} ms`)
  })

  test('`servers` of a shared lock is the smallest count of all its leases', async (t) => {
    const { servers, urls, locks } = await startHeld(t)
    const readers = [1, 2].map((number) => createLockClient({ store: urls, name: `reader ${number}`, ttl: 60_000 }))
    atEnd(t, () => Promise.all(readers.map((reader) => reader.close())))
    for (const reader of readers) await reader.readWriteLock('shared').read.acquire()
    const tokens = (server) => server.ask('ZRANGE', 'lock:shared', '0', '-1')
    const have = async (count) => (await Promise.all(servers.map(tokens))).every(({ length }) => length === count)
    await until('both leases to be at all servers', () => have(2))
    assert.deepEqual((await locks.inspect('shared')).servers, { held: 5, total: 5 })
    const { leases } = await locks.inspect('shared')
    for (const { holder } of leases) {
      // Make one server forget this lease.
      const entries = await servers[4].ask('HGETALL', '{lock:shared}:holders')
      // A note follows the name if the server had granted a smaller fence than the quorum's.
      const token = entries[entries.findIndex((entry) => entry.split('\u001f')[0].endsWith(holder)) - 1]
      const score = await servers[4].ask('ZSCORE', 'lock:shared', token)
      assert.equal(Number(await servers[4].ask('ZREM', 'lock:shared', token)), 1, JSON.stringify(entries))
      const info = await locks.inspect('shared')
      const listed = (await locks.list()).locks.find(({ key }) => key === 'shared')
      for (const counts of [info, listed]) {
        assert.deepEqual(counts.servers, { held: 4, total: 5 }, holder)
        assert.deepEqual(counts.leases.map((lease) => lease.servers.held).sort(), [4, 5])
      }
      await servers[4].ask('ZADD', 'lock:shared', score, token)
    }
  })

  test('inspect() and list() do not delay other calls', async (t) => {
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
