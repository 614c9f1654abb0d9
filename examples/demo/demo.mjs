// Real processes compete for one lock. The holder does the next jobs of a list, in order.
//
//   npm run demo                                    on the embedded store, in a temporary directory
//   npm run demo -- --store redis://127.0.0.1       the same on Redis
//   npm run demo -- --ttl 5000                      another time to live, in ms
//   npm run demo -- --without-lock                  what happens without the lock
//   npm run demo -- --json                          as JSON, with the timeline on standard error
//
// The first holder is stopped, the second is killed with SIGKILL, and a third finishes the list.
// The exit code is 0 only if the ledger then has every job once and in order.

import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { compete, race } from './acts.mjs'
import { faultsOf, readLedger } from './ledger.mjs'
import { now, Racer } from './racer.mjs'
import { Timeline } from './timeline.mjs'

const NAMES = ['anna', 'ben', 'cleo']
const JOBS = 30
/** How long a job takes, in ms. */
const PACE = 200
/** How long the whole demo may take, in ms, without the ttl that a crash may cost. */
const LIMIT = 30_000

function parse() {
  const { values } = parseArgs({
    options: {
      store: { type: 'string' },
      // The ttl is short, because on Redis a crash costs this time, but long enough for a busy
      // machine.
      ttl: { type: 'string', default: '2000' },
      'without-lock': { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
    },
  })
  return { store: values.store, ttl: Number(values.ttl), withoutLock: values['without-lock'], json: values.json }
}

/**
 * Fails at once, with a readable message, if the library is not built or the store can't be used.
 */
async function checkStore(store, ttl) {
  if (store.startsWith('memory:')) throw new Error('memory: is known to one process only; this demo has several')
  let leasehold
  try {
    leasehold = createRequire(import.meta.url)('../..')
  } catch (cause) {
    throw new Error('leasehold is not built here: run `npm install` first (it needs Rust, see README.md)', { cause })
  }
  const locks = leasehold.createLockClient({ store, ttl })
  await locks.ready()
  await locks.close()
}

/** Returns a store's URL without its password. */
const shown = (store) => store.replace(/\/\/[^/@]*@/, '//…@')

function summary(timeline, { store, ttl, handOvers, entries }) {
  const { released, killed } = handOvers
  timeline.say()
  timeline.say(`hand-over after a stop     ${released.toFixed(1).padStart(8)} ms   lock released → next holder at work`)
  const price = store.startsWith('sqlite:')
    ? 'the embedded store sees that the process is gone'
    : `Redis cannot see a crash: up to the ttl, ${ttl} ms`
  timeline.say(`hand-over after SIGKILL    ${killed.toFixed(1).padStart(8)} ms   ${price}`)
  const tenures = new Map(entries.map(({ fence, by }) => [fence, by]))
  timeline.say(`fences                     ${[...tenures].map(([fence, by]) => `${by} ${fence}`).join(' < ')}`)
}

async function main() {
  const { store: given, ttl, withoutLock, json } = parse()
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-demo-'))
  const racers = []
  const timeline = new Timeline(json ? process.stderr : process.stdout, NAMES)
  const fail = () => {
    for (const racer of racers) racer.kill()
    process.exitCode = 1
  }
  process.once('exit', () => {
    for (const racer of racers) racer.kill()
    // A racer that is being killed may still write here.
    rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  })
  // npm and `leasehold demo` pass on the Ctrl-C that the terminal sends here, too. With
  // process.once(), such a copy could end this process before the folder is removed.
  process.on('SIGINT', () => process.exit(130)).on('SIGTERM', () => process.exit(143))
  // The reader may stop reading, as head(1) does.
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', ({ code }) => process.exit(code === 'EPIPE' ? 0 : 1))
  }

  const store = given ?? `sqlite:${join(folder, 'locks.db')}`
  const ledger = join(folder, 'ledger.jsonl')
  writeFileSync(ledger, '')
  await checkStore(store, ttl)

  timeline.say(`${JOBS} jobs, to be done once each and in order, by the holder of the lock.`, true)
  timeline.say(withoutLock ? 'This time no process acquires the lock.' : `store ${shown(store)}, ttl ${ttl} ms`)
  timeline.say()
  timeline.begin(now())

  // The key is new, so that entries of another run at the store do not matter.
  const settings = { store, ttl, ledger, withoutLock, key: `demo-${randomUUID()}`, jobs: JOBS, pace: PACE }
  const start = (name) => {
    const racer = new Racer(name, settings, timeline)
    racers.push(racer)
    return racer
  }
  const overtime = new AbortController()
  try {
    const act = withoutLock ? race(start, NAMES) : compete(start, NAMES, timeline)
    const late = sleep(LIMIT + ttl, undefined, { signal: overtime.signal }).then(() => {
      throw new Error(`the demo was not over after ${(LIMIT + ttl) / 1000} s`)
    })
    late.catch(() => {})
    const handOvers = await Promise.race([act, late])
    const entries = readLedger(ledger)
    if (handOvers) summary(timeline, { store, ttl, handOvers, entries })
    const faults = faultsOf(entries, JOBS)
    if (json) console.log(JSON.stringify({ ok: faults.length === 0, jobs: JOBS, faults, handOvers: handOvers ?? null }))
    timeline.say()
    for (const fault of faults) timeline.bad(fault)
    if (faults.length) return fail()
    const holders = new Set(entries.map(({ by }) => by)).size
    timeline.good(`${JOBS} jobs by ${holders} processes: no job was lost, doubled or out of order.`)
  } catch (error) {
    timeline.bad(error.message)
    fail()
  } finally {
    overtime.abort()
  }
}

try {
  await main()
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
}
