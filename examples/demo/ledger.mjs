// The shared ledger is a plain file. The holder of the lock appends one line for each job that it
// did. Only the lock and its fence protect the file, so the file shows whether they work.

import { appendFileSync, readFileSync } from 'node:fs'

/** Returns all entries, { job, fence, by }, in the order in which they were written. */
export function readLedger(path) {
  return readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
}

/** Returns the number of the next job. */
export const nextJob = (path) => (readLedger(path).at(-1)?.job ?? 0) + 1

/**
 * Records that a job was done, in one write, so that a killed process has written all of it or
 * nothing.
 */
export function writeEntry(path, entry) {
  appendFileSync(path, `${JSON.stringify(entry)}\n`)
}

/**
 * Returns what is wrong with a ledger that should have the jobs 1 to `jobs`, each once and in
 * order. Empty if nothing is wrong.
 */
export function faultsOf(entries, jobs) {
  const faults = []
  const times = (job) => entries.filter((entry) => entry.job === job).length
  const all = Array.from({ length: jobs }, (_, i) => i + 1)
  const name = (list) => `${list.length} (${list.slice(0, 8).join(', ')}${list.length > 8 ? ', …' : ''})`

  const lost = all.filter((job) => times(job) === 0)
  if (lost.length) faults.push(`jobs lost: ${name(lost)}`)
  const doubled = all.filter((job) => times(job) > 1)
  if (doubled.length) faults.push(`jobs done more than once: ${name(doubled)}`)
  const strange = entries.map(({ job }) => job).filter((job) => !all.includes(job))
  if (strange.length) faults.push(`unknown jobs: ${name(strange)}`)

  const pairs = entries.slice(1).map((entry, i) => [entries[i], entry])
  const early = pairs.filter(([before, after]) => after.job < before.job).map(([, after]) => after.job)
  if (early.length) faults.push(`jobs out of order: ${name(early)}`)
  const late = pairs.filter(([before, after]) => after.fence < before.fence).map(([, after]) => after.job)
  if (late.length) faults.push(`jobs written under an older fence than the one before: ${name(late)}`)
  const owner = new Map()
  const shared = entries.filter(({ fence, by }) => (owner.get(fence) ?? owner.set(fence, by).get(fence)) !== by)
  if (shared.length)
    faults.push(`jobs written under the fence of another process: ${name(shared.map(({ job }) => job))}`)
  return faults
}
