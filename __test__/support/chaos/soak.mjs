// Many leases through one client while something happens to its Redis every second, and what has grown afterwards.

import { startChild } from '../child.mjs'
import { now, until } from '../clock.mjs'
import { startMasters } from '../masters.mjs'
import { randomFrom } from '../random.mjs'
import { keysWithTtl } from '../resp.mjs'
import { cut, deaf, dropped, frozen, killed, mute, silent } from './faults.mjs'
import { storm } from './storm.mjs'

const TTL = 1_000
/** Each leaves a fence at the store, for an hour. */
const KEYS = 5_000
/** V8 and the allocator take 20 MB more in the first half of a million, and then no more. */
const WARM_UP = 600_000
/** How much more there may be afterwards than before. */
const SLACK = {
  rss: 12,
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

/** The keys at all servers: fences, which stay for an hour, and others, which must not stay. */
async function keysAt(nodes) {
  const count = { fences: 0, others: 0 }
  for (const { server } of nodes) {
    const command = await server.command()
    for (const [name] of await keysWithTtl(command)) count[name.endsWith(':fence') ? 'fences' : 'others']++
    command.close()
  }
  return count
}

/** Lets the child use `leases` while faults come and go, heals, and measures when everything is over. */
async function use(child, nodes, random, leases) {
  let going = true
  const used = child.ask('use', { leases }, 3_600_000).finally(() => {
    going = false
  })
  const faults = [killed, frozen, cut, dropped, silent, deaf, mute]
  const times = { every: 1_000, least: 50, most: 400 }
  // As many as a quorum survives.
  const atMost = Math.max(1, Math.floor((nodes.length - 1) / 2))
  const [result, struck] = await Promise.all([
    used,
    storm({ nodes, faults, random, going: () => going, atMost, ...times }),
  ])
  await until('the last leases to end', async () => (await keysAt(nodes)).others === 0, 10 * TTL, 100)
  const { at, event, ...measured } = await child.ask('measure')
  return { result, faults: struck.length, row: { ...measured, ...(await keysAt(nodes)) } }
}

/**
 * Acquires and releases `leases` of a Redis, or of a quorum of so many `masters`, under faults, after as many as memory takes to reach its height:
 * { rows: { before, after }, grown: the names of what has grown by more than it may, faults, seconds }.
 */
export async function soakThroughFaults(t, leases, masters = 1) {
  const random = randomFrom(t)
  // Without its data: what a lost lease leaves behind is also to be seen.
  const nodes = await startMasters(t, masters)
  const urls = nodes.map(({ url }) => url)
  const options = { store: masters === 1 ? urls[0] : urls, keys: KEYS, ttl: TTL }
  // Where V8 may, it lets its nursery grow for millions of leases (80 MB with Node 24), in which a leak would go unseen.
  const nodeArgs = ['--expose-gc', '--max-semi-space-size=2']
  const child = startChild(t, '../../chaos/fixtures/soak.mjs', options, { nodeArgs })
  await child.next('ready')
  const warm = await use(child, nodes, random, WARM_UP)
  const start = now()
  const { result, faults, row } = await use(child, nodes, random, leases)
  const seconds = (now() - start) / 1_000
  // A fence is there for each key at most, however often the server was emptied.
  const before = { ...warm.row, fences: KEYS * masters }
  const grown = Object.keys(SLACK).filter((name) => row[name] - before[name] > SLACK[name])
  if (result.unhandled) grown.push(`${result.unhandled} unhandled rejections`)
  t.diagnostic(`granted ${result.granted}, failed ${result.failed}`)
  return { rows: { before: warm.row, after: row }, grown, faults, seconds }
}
