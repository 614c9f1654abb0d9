// Runs several processes that contend for locks at a store and write to one fenced storage.
// Collects their results.

import { startChild } from '../child.mjs'
import { until } from '../clock.mjs'

const FIXTURES = '../../chaos/fixtures'
/**
 * Most contenders want this lock, and hold it for a short time. How often they get it is the
 * throughput.
 */
export const BUSY = 'busy'
/** This lock is held for longer than its ttl, so it has to be renewed during faults. */
export const LONG = 'long'

const sum = (reports, name) => reports.reduce((total, { counts }) => total + counts[name], 0)

class Workload {
  #storage
  #processes

  constructor(storage, processes) {
    this.#storage = storage
    this.#processes = processes
  }

  get processes() {
    return this.#processes
  }

  /** Resolves when `count` more leases have ended. */
  async worked(count, timeout = 20_000) {
    const { tenures } = await this.#storage.ask('look')
    const done = async () => (await this.#storage.ask('look')).tenures >= tenures + count
    await until(`${count} more leases`, done, timeout, 20)
  }

  /** Ends the work. Returns { wrong, overlaps, errors, counts, entered }. */
  async stop() {
    const reports = await Promise.all(this.#processes.map((child) => child.ask('stop', {}, 60_000)))
    const { wrong, overlaps, overlapCount, entered } = await this.#storage.ask('judge', {}, 60_000)
    const errors = {}
    for (const [name, times] of reports.flatMap((report) => Object.entries(report.errors))) {
      errors[name] = (errors[name] ?? 0) + times
    }
    const names = ['acquired', 'tenures', 'lost', 'events', 'refused', 'late']
    const counts = Object.fromEntries(names.map((name) => [name, sum(reports, name)]))
    counts.longestOverrun = Math.round(Math.max(...reports.map((report) => report.counts.longestOverrun)))
    return {
      wrong: [...wrong, ...reports.flatMap((report) => report.wrong)],
      overlaps,
      overlapCount,
      errors,
      counts,
      entered: (entered[BUSY] ?? []).sort((a, b) => a - b),
    }
  }
}

/**
 * Starts `processes` with `contenders` each that want the same lock, and one more each that holds
 * another lock for up to three ttls. Resolves when they work. `store` is a URL or an array of URLs.
 */
export async function startWorkload(
  t,
  { store, processes = 3, contenders = 4, ttl = 1_000, wait = 3_000, client = {} },
) {
  const storage = startChild(t, `${FIXTURES}/storage.mjs`)
  const { port } = await storage.next('ready')
  const locks = { [BUSY]: { contenders, hold: 4 }, [LONG]: { contenders: 1, hold: 3 * ttl } }
  const children = Array.from({ length: processes }, (_, i) =>
    startChild(t, `${FIXTURES}/contender.mjs`, { store, storage: port, who: `p${i}`, locks, ttl, wait, client }),
  )
  await Promise.all(children.map((child) => child.next('running')))
  const workload = new Workload(storage, children)
  await workload.worked(20)
  return workload
}
