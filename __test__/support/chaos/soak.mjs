// Acquires many leases through one client while a fault hits its Redis every second, and returns
// what has grown.

import { startChild } from '../child.mjs'
import { now, until } from '../clock.mjs'
import { startMasters } from '../masters.mjs'
import { randomFrom } from '../random.mjs'
import { keysWithTtl } from '../resp.mjs'
import { cut, deaf, dropped, frozen, killed, mute, silent } from './faults.mjs'
import { injectFaults } from './random-faults.mjs'

const TTL = 1_000
/** How many keys the leases have. Each key leaves a fence at the store, for an hour. */
const KEYS = 5_000
/** How much more of each may be used after the leases than before. */
const SLACK = {
  heap: 2,
  external: 2,
  files: 1,
  threads: 0,
  handles: 1,
  held: 0,
  waiting: 0,
  fences: 0,
  others: 0,
}

/**
 * Counts the keys at all servers: fences, which stay for an hour, and other keys, which must not
 * stay.
 */
async function keysAt(nodes) {
  const count = { fences: 0, others: 0 }
  for (const { server } of nodes) {
    const command = await server.command()
    for (const [name] of await keysWithTtl(command)) count[name.endsWith(':fence') ? 'fences' : 'others']++
    command.close()
  }
  return count
}

/**
 * Lets the child use `leases` during faults, heals the faults, and measures when all leases have
 * ended.
 */
async function use(child, nodes, random, leases) {
  let going = true
  const used = child.ask('use', { leases }, 3_600_000).finally(() => {
    going = false
  })
  const faults = [killed, frozen, cut, dropped, silent, deaf, mute]
  const times = { every: 1_000, least: 50, most: 400 }
  // As many nodes as a quorum can lose.
  const atMost = Math.max(1, Math.floor((nodes.length - 1) / 2))
  const [result, struck] = await Promise.all([
    used,
    injectFaults({ nodes, faults, random, going: () => going, atMost, ...times }),
  ])
  await until('the last leases to end', async () => (await keysAt(nodes)).others === 0, 10 * TTL, 100)
  const { at, event, ...measured } = await child.ask('measure')
  return { result, faults: struck.length, row: { ...measured, ...(await keysAt(nodes)) } }
}

/**
 * Acquires and releases `leases` of a Redis, or of a quorum of `masters`, under faults. Before the
 * first measurement, it acquires and releases `warmUp` leases: V8 and the allocator take 20 MB more
 * in the first half of a million leases, and then no more. At the second measurement, the process
 * may have `rss` MB more of memory. Returns { rows: { before, after }, grown: the names of what has
 * grown too much, faults, seconds }.
 */
export async function soakThroughFaults(t, { leases, warmUp = 600_000, rss = 12, masters = 1 }) {
  const random = randomFrom(t)
  // The servers lose their data, so that the test also sees what lost leases leave behind.
  const nodes = await startMasters(t, masters)
  const urls = nodes.map(({ url }) => url)
  const options = { store: masters === 1 ? urls[0] : urls, keys: KEYS, ttl: TTL }
  // With a larger limit, V8 lets its nursery grow for millions of leases (80 MB with Node 24),
  // which would hide a leak.
  const nodeArgs = ['--expose-gc', '--max-semi-space-size=2']
  const child = startChild(t, '../../chaos/fixtures/soak.mjs', options, { nodeArgs })
  await child.next('ready')
  const warm = await use(child, nodes, random, warmUp)
  const start = now()
  const { result, faults, row } = await use(child, nodes, random, leases)
  const seconds = (now() - start) / 1_000
  // The server has at most one fence for each key, however often it was emptied.
  const before = { ...warm.row, fences: KEYS * masters }
  const slack = { ...SLACK, rss }
  const grown = Object.keys(slack).filter((name) => row[name] - before[name] > slack[name])
  if (result.unhandled) grown.push(`${result.unhandled} unhandled rejections`)
  t.diagnostic(`granted ${result.granted}, failed ${result.failed}`)
  return { rows: { before: warm.row, after: row }, grown, faults, seconds }
}
