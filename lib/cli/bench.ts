// Measures how fast locks are at the user's own store.

import { randomUUID } from 'node:crypto'
import type * as api from '../../index'
import { formatDuration } from '../util/format-duration'
import { type Command, count, flag, text } from './command'
import { parseDuration } from './parse-duration'
import { clientOptions, openClient, STORE_OPTIONS } from './store'
import { paint, say, sayJson, table } from './terminal'

interface Measured {
  readonly what: string
  readonly perSecond: number
  /** The percentiles, in ms. */
  readonly p50: number
  readonly p99: number
}

export const bench: Command = {
  name: 'bench',
  synopsis: '[options]',
  summary: 'measure how fast locks are at your store',
  details: `
Makes three measurements of --time each, with new keys, from one process: acquire and release one at a
time; many at a time, each with its own key; and the hand-over of one lock between two clients, from the
release to the first line of the next holder.`,
  examples: ['leasehold bench --store redis://localhost', 'leasehold bench --time 5s --json'],
  options: {
    time: { type: 'string', short: 't', value: 'TIME', help: 'time for each measurement: 100ms to 1m. Default 1s' },
    parallel: { type: 'string', short: 'p', value: 'N', help: 'acquire N locks at a time: 2 to 1000. Default 64' },
    ...STORE_OPTIONS,
  },
  words: [0, 0],
  async run(given) {
    const time = parseDuration('time', text(given, 'time') ?? '1s', 100, 60_000)
    const parallel = count(given, 'parallel', 64, 2, 1_000)
    // Switch local hand-offs off: they would measure this process, not the store.
    const options = clientOptions(given, { handOffs: 0 })
    const clients = [openClient(options), openClient(options)] as const
    try {
      await Promise.all(clients.map((locks) => locks.ready()))
      const run = `leasehold-bench:${randomUUID()}`
      await pairs(clients[0], [run], 100)
      const measured = [
        await alone('one at a time', clients[0], [`${run}:0`], time),
        await alone(
          `${parallel} at a time`,
          clients[0],
          Array.from({ length: parallel }, (_, i) => `${run}:${i}`),
          time,
        ),
        await handOvers(clients, run, time),
      ]
      if (flag(given, 'json')) sayJson({ time, parallel, measured })
      else tell(measured)
      return 0
    } finally {
      await Promise.all(clients.map((locks) => locks.close()))
    }
  },
}

async function alone(what: string, locks: api.LockClient, keys: string[], time: number): Promise<Measured> {
  const start = performance.now()
  const spans = await pairs(locks, keys, time)
  return summary(what, spans, performance.now() - start)
}

/** Acquires and releases each key again and again. Returns how long each pair took, in ms. */
async function pairs(locks: api.LockClient, keys: string[], time: number): Promise<number[]> {
  const spans: number[] = []
  const until = performance.now() + time
  await Promise.all(
    keys.map(async (key) => {
      for (let now = performance.now(); now < until; ) {
        const lease = await locks.acquire(key)
        await lease.release()
        const end = performance.now()
        spans.push(end - now)
        now = end
      }
    }),
  )
  return spans
}

async function handOvers(clients: readonly api.LockClient[], key: string, time: number): Promise<Measured> {
  const spans: number[] = []
  const start = performance.now()
  let released: number | undefined
  await Promise.all(
    clients.map(async (locks) => {
      while (performance.now() - start < time) {
        const lease = await locks.acquire(key, { wait: 60_000 })
        const now = performance.now()
        if (released !== undefined) spans.push(now - released)
        // Wait until the other client waits for the lock.
        while ((await locks.inspect(key))?.waiters.length === 0 && performance.now() - start < time) {}
        released = performance.now()
        await lease.release()
      }
    }),
  )
  return summary('hand-over', spans, performance.now() - start)
}

function summary(what: string, spans: number[], took: number): Measured {
  spans.sort((a, b) => a - b)
  const at = (share: number) => spans[Math.min(Math.floor(spans.length * share), spans.length - 1)] ?? 0
  return { what, perSecond: (spans.length / took) * 1_000, p50: at(0.5), p99: at(0.99) }
}

function tell(measured: readonly Measured[]): void {
  const rows = measured.map(({ what, perSecond, p50, p99 }) => [
    what,
    perSecond.toFixed(0),
    formatDuration(p50),
    formatDuration(p99),
  ])
  say(table(['', 'PER SECOND', 'P50', 'P99'], rows, [1, 2, 3]))
  say(paint('dim', 'from one process on this machine; the hand-over counts from the release to the next holder'))
}
