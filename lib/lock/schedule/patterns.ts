// The patterns of this thread's schedules. Schedules of one name are one job, so their patterns
// should be the same. See docs/cron.md.

import type { StoreIdentity } from '../../../index'
import { emitWarning } from '../../diagnostics/warning'
import { quote } from '../../util/printable'

/** The code of the warning: see docs/cron.md. */
const CODE = 'LEASEHOLD_SCHEDULE_PATTERNS'

/** A schedule, and when it runs. */
export interface SchedulePattern {
  readonly name: string
  /** The client of the schedule. */
  readonly client: { readonly identity: { readonly store: StoreIdentity } }
  /** The prefix of the client. */
  readonly prefix: string
  readonly cron: string
  readonly timeZone: string
}

/** The patterns of the schedules of each name that have not ended. */
const known = new Map<string, Set<SchedulePattern>>()
/** The jobs, with the prefix of their clients, whose warning was emitted. */
const warned = new Set<string>()

/**
 * Notes the pattern of a schedule that begins. Emits a process warning if another client has the
 * same job with another pattern: the first time for each job.
 */
export function notePattern(pattern: SchedulePattern): void {
  const others = known.get(pattern.name) ?? new Set()
  known.set(pattern.name, others)
  for (const other of others) if (isSameJob(other, pattern) && wordsOf(other) !== wordsOf(pattern)) warn(other, pattern)
  others.add(pattern)
}

/** Forgets the pattern of a schedule that has ended. */
export function forgetPattern(pattern: SchedulePattern): void {
  const others = known.get(pattern.name)
  others?.delete(pattern)
  if (others?.size === 0) known.delete(pattern.name)
}

function isSameJob(a: SchedulePattern, b: SchedulePattern): boolean {
  const [one, other] = [a.client.identity.store, b.client.identity.store]
  return a.prefix === b.prefix && one.kind === other.kind && one.url === other.url
}

function wordsOf({ cron, timeZone }: SchedulePattern): string {
  return `${quote(cron.trim().replace(/\s+/g, ' '))} (${timeZone})`
}

function warn(first: SchedulePattern, second: SchedulePattern): void {
  const job = first.prefix + first.name
  if (warned.has(job)) return
  warned.add(job)
  emitWarning(
    CODE,
    undefined,
    () =>
      `Two clients of this process have a schedule ${quote(first.name)} with different patterns: ${wordsOf(first)} and ` +
      `${wordsOf(second)}. All schedules of one name are one job, which now runs at the ticks of both: use the same ` +
      'pattern and time zone, or a name for each job',
  )
}
