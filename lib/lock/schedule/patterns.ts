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

/** The schedules of one job that have not ended. */
interface Job {
  readonly patterns: Set<SchedulePattern>
  hasWarned: boolean
}

/** The jobs, by {@link jobOf}. */
const jobs = new Map<string, Job>()

/**
 * Notes the pattern of a schedule that begins. Emits a process warning if another client has the
 * same job with another pattern: once, until all schedules of the job have ended.
 */
export function notePattern(pattern: SchedulePattern): void {
  const id = jobOf(pattern)
  const job: Job = jobs.get(id) ?? { patterns: new Set(), hasWarned: false }
  jobs.set(id, job)
  if (job.patterns.size > 0 && !job.hasWarned) {
    const ticks = ticksOf(pattern)
    const other = [...job.patterns].find((earlier) => ticksOf(earlier) !== ticks)
    if (other !== undefined) warn(other, pattern)
    job.hasWarned = other !== undefined
  }
  job.patterns.add(pattern)
}

/** Forgets the pattern of a schedule that has ended. */
export function forgetPattern(pattern: SchedulePattern): void {
  const id = jobOf(pattern)
  const job = jobs.get(id)
  job?.patterns.delete(pattern)
  if (job?.patterns.size === 0) jobs.delete(id)
}

/** Returns a text that is equal for two schedules if and only if they are one job. */
function jobOf({ name, prefix, client }: SchedulePattern): string {
  const { kind, url } = client.identity.store
  return JSON.stringify([kind, url, prefix, name])
}

/** Returns a text that differs only if two schedules may have different ticks. */
function ticksOf({ cron, timeZone }: SchedulePattern): string {
  const zone = new Intl.DateTimeFormat('en', { timeZone }).resolvedOptions().timeZone
  return `${cron.trim().replace(/\s+/g, ' ').toLowerCase()} ${zone}`
}

const wordsOf = ({ cron, timeZone }: SchedulePattern): string => `${quote(cron.trim())} (${timeZone})`

function warn(first: SchedulePattern, second: SchedulePattern): void {
  emitWarning(
    CODE,
    undefined,
    () =>
      `Two clients of this process have a schedule ${quote(first.name)} with different patterns: ${wordsOf(first)} and ` +
      `${wordsOf(second)}. All schedules of one name are one job, which now runs at the ticks of both: use the same ` +
      'pattern and time zone, or a name for each job',
  )
}
