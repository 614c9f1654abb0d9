// A lock is never handed over while its work still runs, here in rolling restarts: SIGTERM ends
// three servers behind a load balancer in turn, under load, and each starts again. No two of them
// work under one lock at a time, every request gets an answer, and no waiter waits for a ttl.
// LEASEHOLD_TEST_SECONDS sets the duration.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { Balancer } from '../support/balancer.mjs'
import { startChild } from '../support/child.mjs'
import { now, sleep, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { faults, readHistory } from '../support/history.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { openStore, processStoreNames } from '../support/stores.mjs'

const SECONDS = Number(process.env.LEASEHOLD_TEST_SECONDS ?? 5)
const SERVERS = 3
/** How long all servers run between two restarts, in ms. */
const PAUSE = 500
const KEYS = ['a', 'b', 'c', 'd']
/** Far less than the ttl of the servers' leases (15 s), and enough for a busy machine. */
const HAND_OVER = 3_000

const HTTP = ['middleware', 'middleware, until end', 'handler', 'fetch, until handler', 'fetch, until body']
const HARDER = ['releaseOnSignal alone', 'closed before its server']

/** Sends a request every few ms until `isOver` returns true. Resolves with all answers. */
async function load(balancer, isOver) {
  const answers = []
  for (let id = 0; !isOver(); id++) {
    answers.push(balancer.post(`/${KEYS[id % KEYS.length]}/${id}`).catch((error) => ({ error })))
    await sleep(20)
  }
  return Promise.all(answers)
}

/**
 * Ends one server after the other and starts it again until `end`, each at least once. Returns when
 * each got its SIGTERM.
 */
async function roll(servers, start, end, form) {
  const terms = []
  for (let i = 0; now() < end || terms.length < SERVERS; i = (i + 1) % SERVERS) {
    const old = servers[i]
    terms.push({ at: now(), pid: old.pid })
    old.signal('SIGTERM')
    const { code, signal } = await within('the end of a server', old.ended, 20_000)
    assert.deepEqual([code, signal], form === 'releaseOnSignal alone' ? [null, 'SIGTERM'] : [0, null], old.stderr)
    await start(i)
    await sleep(PAUSE)
  }
  return terms
}

/**
 * Returns the longest time, in ms, that a lock had no holder after a SIGTERM to its last holder.
 */
function longestHandOver(tenures, terms) {
  let longest = 0
  for (const { at, pid } of terms) {
    for (const lock of new Set(tenures.map(({ lock }) => lock))) {
      const of = tenures.filter((tenure) => tenure.lock === lock)
      const last = of.filter(({ who, begin }) => who === pid && begin < at + 1_000).at(-1)
      const next = of.find(({ begin, who }) => who !== pid && begin > (last?.end ?? at))
      if (last && next) longest = Math.max(longest, next.begin - Math.max(at, last.end))
    }
  }
  return longest
}

for (const name of processStoreNames) {
  describe(`rolling restarts: ${name}`, { concurrency: 4, timeout: 120_000 + SECONDS * 10_000 }, () => {
    for (const form of [...HTTP, ...HARDER, 'worker', 'schedule']) {
      test(`${form}: a lock is never handed over while its work still runs`, async (t) => {
        const store = await openStore(name, t)
        const history = join(temporaryFolder(t), 'history.jsonl')
        // That form ends the process while its server still accepts requests. Servers of Bun reset
        // idle connections.
        const resendsAll = form === 'releaseOnSignal alone' || process.versions.bun !== undefined
        const balancer = new Balancer({ resendsAll })
        atEnd(t, () => balancer.close())
        const servers = []
        const all = []
        const start = async (i) => {
          const server = startChild(t, 'rolling.mjs', { store, form, history, servers: balancer.servers })
          all.push(server)
          balancer.ports[i] = (await server.next('listening')).port
          servers[i] = server
        }
        await Promise.all(Array.from({ length: SERVERS }, (_, i) => start(i)))
        const end = now() + SECONDS * 1_000
        let isOver = false
        const rolled = roll(servers, start, end, form).finally(() => {
          isOver = true
        })
        const [answers, terms] = await Promise.all([load(balancer, () => isOver), rolled])
        for (const server of servers) server.signal('SIGTERM')
        await Promise.all(servers.map((server) => within('the end', server.ended, 20_000)))

        const entries = readHistory(history)
        const tenures = entries.filter(({ began }) => !began).sort((a, b) => a.begin - b.begin)
        assert.deepEqual(faults(tenures), [])
        const ended = new Set(tenures.map(({ id, who }) => `${id} ${who}`))
        const cut = entries.filter(({ began, id, who }) => began && !ended.has(`${id} ${who}`))
        assert.deepEqual(cut, [], 'work was cut off')
        const begun = entries.filter(({ began }) => began)
        const twice = begun.filter(({ id }, i) => begun.findIndex((other) => other.id === id) !== i)
        assert.deepEqual(twice, [], 'work was done twice')
        assert.deepEqual(
          answers.filter(({ status, error }) => error || status !== 200),
          [],
          'requests got no answer',
        )
        const told = all.flatMap(({ events }) => events.filter(({ event }) => event === 'fault'))
        assert.deepEqual(told, [])
        const longest = longestHandOver(tenures, terms)
        assert.ok(longest < HAND_OVER, `a lock was free for ${longest} ms`)
        assert.ok(terms.length >= 2 && tenures.length >= 2, `${terms.length} restarts, ${tenures.length} leases`)
        const summary = `${terms.length} restarts, ${tenures.length} leases, ${answers.length} answers`
        t.diagnostic(`${summary}, ${balancer.again.length} sent again, longest hand-over ${longest.toFixed(0)} ms`)
      })
    }
  })
}
