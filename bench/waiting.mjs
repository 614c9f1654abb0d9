// Measures how one library waits, and prints the figures as one line of JSON. Started by run.mjs:
//   node waiting.mjs '{"name":"redlock","port":6390,"directory":"/tmp/x","effort":1}'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { waiting } from './waiters.mjs'
import { openWire } from './wire.mjs'

const CONTENDER = fileURLToPath(new URL('contender.mjs', import.meta.url))
const { name, port, directory, effort } = JSON.parse(process.argv[2])
const { commands } = waiting(name)
const wire = await openWire(port)

/** Returns how many commands clients have sent for this library so far. */
async function sent() {
  const info = await wire.call('INFO', 'commandstats')
  let calls = 0
  for (const [, command, count] of info.matchAll(/^cmdstat_([^:|]+):calls=(\d+)/gm)) {
    if (commands.includes(command)) calls += Number(count)
  }
  return calls
}

/** Lets `contenders` in each of `processes` compete for `ms`. */
async function compete({ processes, contenders, hold, stamps, ms }) {
  const children = Array.from({ length: processes }, () => {
    const settings = JSON.stringify({ name, port, directory, contenders, hold, stamps })
    const child = spawn(process.execPath, [CONTENDER, settings], { stdio: ['pipe', 'pipe', 'inherit'] })
    return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() }
  })
  const tell = (word) => children.forEach(({ child }) => void child.stdin.write(`${word}\n`))
  const hear = () => Promise.all(children.map(async ({ lines }) => (await lines.next()).value))
  await hear()
  const before = await sent()
  tell('go')
  const began = performance.now()
  await sleep(ms)
  const after = await sent()
  const took = performance.now() - began
  tell('stop')
  const results = (await hear()).map((line) => JSON.parse(line))
  await Promise.all(children.map(({ child }) => child.exitCode ?? once(child, 'exit')))
  const turns = results.flatMap((result) => result.turns)
  const total = turns.reduce((sum, count) => sum + count, 0)
  const shares = results.map((result) => result.turns.reduce((sum, count) => sum + count, 0))
  return {
    results,
    rate: (total / took) * 1000,
    spread: Math.min(...turns) / Math.max(...turns),
    shares: Math.min(...shares) / Math.max(...shares),
    commands: (after - before) / total,
  }
}

/** Measures the time from the beginning of a release in one process to the lock in the other. */
async function handOver() {
  const { results } = await compete({ processes: 2, contenders: 1, hold: 10, stamps: true, ms: 6000 * effort })
  const all = results.flatMap(({ stamps }, index) => stamps.map(([began, ended]) => ({ index, began, ended })))
  all.sort((a, b) => a.began - b.began)
  const times = []
  for (let i = 1; i < all.length; i++) {
    if (all[i].index !== all[i - 1].index) times.push(all[i].began - all[i - 1].ended)
  }
  times.sort((a, b) => a - b)
  const at = (share) => (times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? Number.NaN) / 1000
  return { handOver50: at(0.5), handOver99: at(0.99), handOverMax: at(1) }
}

const ms = 3000 * effort
const over = await handOver()
const one = await compete({ processes: 1, contenders: 16, ms })
const four = await compete({ processes: 4, contenders: 4, ms })
const many = await compete({ processes: 4, contenders: 16, ms })
wire.close()
console.log(
  JSON.stringify({
    ...over,
    oneRate: one.rate,
    oneSpread: one.spread,
    fourRate: four.rate,
    fourShares: four.shares,
    manyRate: many.rate,
    manySpread: many.spread,
    manyCommands: commands.length ? many.commands : Number.NaN,
  }),
)
