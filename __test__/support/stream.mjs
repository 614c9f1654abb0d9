// Runs two processes that acquire each key of a stream of new keys while `action` happens to the
// store. Reports which leases overlapped, and for how long locks were out of service.

import { startChild } from './child.mjs'
import { now, sleep } from './clock.mjs'
import { faults } from './history.mjs'

/** Returns the leases of each lock. */
function grouped(history) {
  const locks = new Map()
  for (const tenure of history) {
    if (!locks.has(tenure.lock)) locks.set(tenure.lock, [])
    locks.get(tenure.lock).push(tenure)
  }
  return [...locks.values()]
}

/** Returns by how many ms the first two leases of a lock overlap, or less than 0 if they don't. */
const longestOverlap = (tenures) => {
  const [a, b] = tenures
  return b ? Math.min(a.end, b.end) - Math.max(a.begin, b.begin) : 0
}

/** Returns the longest time after `from` without a new lease of one and the same lock, in ms. */
function longestPause(byLock, from) {
  let longest = 0
  for (const tenures of byLock) {
    const begins = tenures.map(({ begin }) => begin).sort((a, b) => a - b)
    for (let i = 1; i < begins.length; i++) {
      if (begins[i] > from) longest = Math.max(longest, begins[i] - begins[i - 1])
    }
  }
  return longest
}

/**
 * Runs two processes that acquire `count` new keys, one every 15 ms. The second process asks for
 * each key 60 ms after the first one. Both also contend for four other keys. Calls `action` 4 s
 * after the beginning. Resolves to { outcome (of `action`), overlaps (one sentence for each), worst
 * (the longest overlap, ms), pause (the longest time without a new lease of a contended key, ms),
 * gap (the longest time without a lease of a new key, ms), granted, tenures (their number), errors,
 * wrong }.
 */
export async function streamThrough(t, { store, client, count = 800, ttl = 10_000, ...more }, action) {
  const settings = {
    store,
    client: { ttl, ...client },
    count,
    every: 15,
    later: 60,
    hold: 4_000,
    wait: 3_000,
    contended: 4,
  }
  const start = (who) => startChild(t, 'stream.mjs', { ...settings, ...more, who, first: who === 'first' })
  const children = [start('first'), start('second')]
  await Promise.all(children.map((child) => child.next('ready')))
  const at = now() + 200
  await Promise.all(children.map((child) => child.ask('go', { at })))
  await sleep(4_000)
  const acted = now()
  const outcome = await action()
  const reports = await Promise.all(children.map((child) => child.ask('stop', {}, 60_000)))
  const history = reports.flatMap(({ tenures }) => tenures)
  const byLock = grouped(history)
  const isContended = ([{ lock }]) => lock.startsWith('contended:')
  const begins = history.filter(({ lock }) => lock.startsWith('stream:'))
  return {
    outcome,
    overlaps: faults(history),
    worst: Math.max(0, ...byLock.filter((tenures) => !isContended(tenures)).map(longestOverlap)),
    pause: longestPause(byLock.filter(isContended), acted),
    gap: longestPause([begins], acted),
    granted: begins.length,
    tenures: history.length,
    errors: reports.map(({ errors }) => errors),
    wrong: reports.flatMap(({ wrong }) => wrong),
  }
}
