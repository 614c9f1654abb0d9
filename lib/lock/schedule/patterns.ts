// The patterns of this thread's schedules. Schedules of one name are one job, so their patterns
// should be the same. See docs/cron.md.

import type { StoreIdentity } from '../../../index'
import { emitWarning } from '../../diagnostics/warning'
import { quote } from '../../util/printable'
import type { Cron } from './cron'

/** The code of the warning: see docs/cron.md. */
const CODE = 'LEASEHOLD_SCHEDULE_PATTERNS'
/**
 * The number of next ticks that are compared, and the number of weeks in each of which one more
 * tick is compared: the ticks of two time zones may differ in summer only. If these are larger, the
 * second schedule takes longer to begin; if they are smaller, more differences go unnoticed.
 */
const [NEXT_TICKS, WEEKS] = [10, 52]
const WEEK = 7 * 24 * 3_600_000

/** A schedule, and when it runs. */
export interface SchedulePattern {
  readonly name: string
  /** The client of the schedule. */
  readonly client: { readonly identity: { readonly store: StoreIdentity } }
  /** The prefix of the client. */
  readonly prefix: string
  readonly cron: string
  readonly timeZone: string
  readonly ticks: Pick<Cron, 'next'>
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
 * same job with other ticks: once, until all schedules of the job have ended.
 */
export function notePattern(pattern: SchedulePattern): void {
  const id = jobOf(pattern)
  const job: Job = jobs.get(id) ?? { patterns: new Set(), hasWarned: false }
  jobs.set(id, job)
  const [first] = job.patterns
  if (first !== undefined && !job.hasWarned) {
    // There was no warning, so all earlier patterns have the same ticks.
    const isKnown = [...job.patterns].some((earlier) => isSpelledLike(earlier, pattern))
    job.hasWarned = !isKnown && !haveSameTicks(first, pattern)
    if (job.hasWarned) warn(first, pattern)
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

/** Returns a text that is equal only for schedules that are one job. */
function jobOf({ name, prefix, client }: SchedulePattern): string {
  const { kind, url } = client.identity.store
  return JSON.stringify([kind, url, prefix, name])
}

const isSpelledLike = (one: SchedulePattern, other: SchedulePattern): boolean =>
  one.cron === other.cron && one.timeZone === other.timeZone

/** Returns false if the schedules certainly have different ticks. */
function haveSameTicks(one: SchedulePattern, other: SchedulePattern): boolean {
  const now = Date.now()
  let tick: number | undefined = now
  for (let i = 0; i < NEXT_TICKS && tick !== undefined; i++) {
    const next = one.ticks.next(tick)
    if (next !== other.ticks.next(tick)) return false
    tick = next
  }
  for (let week = 1; week <= WEEKS; week++) {
    const at = now + week * WEEK
    if (one.ticks.next(at) !== other.ticks.next(at)) return false
  }
  return true
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
