// Measures one library over five masters: all up, one of them frozen, two of them frozen. Prints
// the figures as one line of JSON. Started by run.mjs, which thaws the masters afterwards:
//   node voting.mjs '{"name":"redlock","masters":[{"port":6390,"pid":4711},…],"effort":1}'
import { cpuSource, manyAtATime } from './measure.mjs'
import { voting } from './voters.mjs'

/** How many pairs are under way at a time when all masters are up. */
const WIDTH = 64

const { name, masters, effort } = JSON.parse(process.argv[2])
const { read: cpu } = cpuSource()

function percentile(times, share) {
  const sorted = Float64Array.from(times).sort()
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] * 1000
}

const { acquire, release, close } = await voting(name).open({ ports: masters.map(({ port }) => port) })

const failures = []
const failed = (error) => {
  failures.push(error.message)
}

/** After a time-out, a key may stay taken until its ttl. From then on, all keys are new ones. */
const pair = { acquire: (key) => acquire(failures.length ? `${key}-${failures.length}` : key), release }

/**
 * Runs one pair after the other, for `limit` ms at most. Shows how long a single caller waits, in
 * µs, including failed calls.
 */
async function oneAtATime(pairs, limit) {
  const acquired = []
  const both = []
  const until = performance.now() + limit
  const before = cpu()
  for (let now = performance.now(); both.length < pairs && now < until; ) {
    let middle
    try {
      const held = await pair.acquire(`one-${both.length % 100}`)
      middle = performance.now()
      await pair.release(held)
    } catch (error) {
      failed(error)
    }
    const after = performance.now()
    acquired.push((middle ?? after) - now)
    both.push(after - now)
    now = after
  }
  const used = cpu() - before
  return {
    acquire50: percentile(acquired, 0.5),
    acquire99: percentile(acquired, 0.99),
    pair50: percentile(both, 0.5),
    cpu: used / both.length,
    pairs: both.length,
    cutShort: both.length < pairs,
  }
}

// Warm up the JIT, but not for too long if the subject is slow.
await oneAtATime(2000, 1500 * effort)
const up = await oneAtATime(10_000 * effort, 5000 * effort)
await manyAtATime(pair, cpu, 5000 * effort, 1000 * effort, WIDTH, failed)
const many = await manyAtATime(pair, cpu, 30_000 * effort, 5000 * effort, WIDTH, failed)

/**
 * Freezes one more master, which keeps its connections and does not reply. The measurement begins
 * at that moment, without a pause.
 */
async function freezeOne(master) {
  process.kill(master.pid, 'SIGSTOP')
  return oneAtATime(10_000 * effort, 5000 * effort)
}

/** Returns by how much the figures are above those with all masters up. */
const added = (frozen, suffix) => ({
  [`adds${suffix}`]: frozen.acquire50 - up.acquire50,
  [`addsTail${suffix}`]: frozen.acquire99 - up.acquire99,
  [`addsPair${suffix}`]: frozen.pair50 - up.pair50,
  [`addsCpu${suffix}`]: frozen.cpu - up.cpu,
})

const one = await freezeOne(masters.at(-1))
const two = await freezeOne(masters.at(-2))
const frozen = [one, two]
console.log(JSON.stringify({ ...up, ...many, ...added(one, 1), ...added(two, 2), frozen, failures }))
await close()
