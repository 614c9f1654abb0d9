// Runs a job at the ticks of a cron pattern. One process of the cluster takes each tick: see
// docs/cron.md.

import type * as api from '../../../index'
import { LockAbortedError, LockClosedError, LockLostError, LockTimeoutError } from '../../diagnostics/errors'
import { warnOnce } from '../../diagnostics/unheard'
import { Flag } from '../../native/protocol'
import { badValue, checkFunction, checkKey } from '../../util/arguments'
import { asError } from '../../util/as-error'
import { defineDispose } from '../../util/dispose'
import { Emitter } from '../../util/emitter'
import { quote } from '../../util/printable'
import { callListener } from '../../util/uncaught'
import type { ClientContext } from '../client-context'
import { withFailFast } from '../fail-fast'
import type { Lease } from '../lease'
import { remember } from '../lease-methods'
import { onceKeyOf } from '../once-key'
import { runSection } from '../with-lock'
import type { OnceContext } from './acquire-once'
import { Cron } from './cron'
import { JobRun } from './job-run'
import { runOnce } from './once'
import { forgetPattern, notePattern, type SchedulePattern } from './patterns'
import { parseSchedule, type ScheduleSettings } from './schedule-options'

/**
 * The longest sleep, in ms. If this is larger, a schedule notices later that the clock was set, or
 * that the machine was asleep; if it is smaller, idle schedules wake the process more often.
 */
const MAX_SLEEP = 5_000
/**
 * How far back the clock may be set, in ms, before the schedule forgets the ticks that it has seen.
 */
const SET_BACK = 60_000
/**
 * How long {@link Schedule.stop} waits for the store to remember a tick after its job has ended, in
 * ms. If this is larger, a store that is down delays the end of the process for longer. If it is
 * smaller, the process may end just before a slow store remembers the tick.
 */
const MARKING = 2_000
/** The id of a tick at the latest instant of a Date. No tick has a longer id. */
const LONGEST_ID = '8640000000000000'

export class Schedule extends Emitter<api.ScheduleEvents> implements api.Schedule {
  readonly name: string
  readonly #context: ClientContext
  readonly #onceContext: OnceContext
  readonly #cron: Cron
  readonly #pattern: SchedulePattern
  readonly #job: api.ScheduledJob
  readonly #settings: ScheduleSettings
  /** The time up to which the schedule has handled its ticks, in ms since 1970. */
  #seen: number
  /** The first tick after {@link #seen}. */
  #next: number | undefined
  #timer: NodeJS.Timeout | undefined
  /** Aborts the requests when the schedule is stopped. */
  readonly #ended = new AbortController()
  /** The ticks that are being asked for or done; none of them rejects. */
  readonly #runs = new Set<JobRun>()
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(Schedule.prototype, (schedule) => schedule.stop())
  }

  constructor(
    client: ClientContext,
    onceContext: OnceContext,
    name: string,
    cron: string,
    job: api.ScheduledJob,
    options: unknown,
  ) {
    checkKey(name, 'name')
    client.checkNames(name)
    onceKeyOf(name, LONGEST_ID)
    const { timeZone, ...settings } = parseSchedule(options, onceContext)
    const ticks = new Cron(name, cron, timeZone)
    checkFunction('fn', job)
    client.checkOpen(name)
    // One of two schedules with the same ticks would never run, without an error.
    if (client.schedules.has(name)) {
      throw badValue(
        `This client has a schedule ${quote(name)} already. Stop that first, or give this one a name of its own: ` +
          'all schedules of one name, in whatever process, are the same job',
      )
    }
    super()
    this.name = name
    this.#context = client
    this.#onceContext = onceContext
    this.#cron = ticks
    this.#pattern = { name, client, prefix: onceContext.prefix, cron, timeZone, ticks }
    this.#job = job
    this.#settings = settings
    const now = Date.now()
    // The process may have restarted at the time of a tick. Ask for that tick: other processes have
    // taken it if they ran.
    const past = ticks.last(now - settings.catchUp, now)
    this.#seen = past === undefined ? now : past - 1
    notePattern(this.#pattern)
    client.schedules.add(name)
    client.pauses.add(this.#end)
    this.#sleep()
  }

  get next(): Date | null {
    return this.#next === undefined ? null : new Date(this.#next)
  }

  async stop(): Promise<void> {
    this.#end()
    const caller = JobRun.current
    if (caller === undefined) {
      await Promise.all([...this.#runs].map((run) => run.overWithin(MARKING)))
      return
    }
    caller.waitForOthers()
    await Promise.all([...this.#runs].map((run) => run.overOrWaitingWithin(MARKING)))
  }

  /** Also called when the client is closed. */
  readonly #end = (): void => {
    // After the end, another schedule may have the name.
    if (this.#ended.signal.aborted) return
    clearTimeout(this.#timer)
    this.#next = undefined
    this.#context.schedules.delete(this.name)
    forgetPattern(this.#pattern)
    this.#context.pauses.delete(this.#end)
    this.#ended.abort()
  }

  #sleep(): void {
    const now = Date.now()
    if (now < this.#seen - SET_BACK) this.#seen = now
    this.#next = this.#cron.next(this.#seen)
    if (this.#next === undefined) {
      this.#end()
      return
    }
    this.#timer = setTimeout(this.#wake, Math.min(Math.max(this.#next - now, 1), MAX_SLEEP))
    if (this.#settings.unref) this.#timer.unref()
  }

  readonly #wake = (): void => {
    const now = Date.now()
    const due = this.#next as number
    if (now >= due) {
      const tick = this.#cron.last(Math.max(this.#seen, now - this.#settings.catchUp), now)
      this.#seen = now
      if (tick !== undefined) this.#begin(tick)
      // The process was asleep or blocked. Ask only for the last of the ticks since then.
      if (tick !== due) callListener(() => this.emit('missed', new Date(due), null))
    }
    // A listener may have stopped the schedule.
    if (!this.#ended.signal.aborted) this.#sleep()
  }

  #begin(tick: number): void {
    const run = new JobRun((self) => this.#runTick(tick, self).finally(() => this.#runs.delete(self)))
    this.#runs.add(run)
  }

  /**
   * Asks for the tick until the next one comes or it is too old. Runs the job if this process gets
   * the tick.
   */
  async #runTick(tick: number, run: JobRun): Promise<void> {
    const { ttl, keptFor, catchUp, overlap } = this.#settings
    const end = Math.min(tick + catchUp, this.#cron.next(tick) ?? Number.POSITIVE_INFINITY)
    const { signal } = this.#ended
    const task = {
      key: onceKeyOf(this.name, String(tick)),
      ttl,
      keep: keptFor,
      wait: this.#until(end),
      signal,
      // A process that stops while it waits for its turn gives the tick back, so a short lease does
      // not count as taken. That process may have a longer ttl than this one, but mostly not one
      // above half of the option `keep`. `keptFor` is 1.5 times that option.
      ...(overlap ? {} : { keptAbove: Math.max(ttl, keptFor / 3) }),
      // Errors of the job do not get here: a failure means that the job was not begun.
      onFailure: 'forget' as const,
      work: (lease: Lease) => this.#runJob(lease, tick, end, run).finally(() => run.noteJobEnd()),
      failed: (error: unknown) => this.#failed(error, tick),
    }
    try {
      await runOnce(this.#onceContext, task)
    } catch (error) {
      if (signal.aborted && (error instanceof LockAbortedError || error instanceof LockClosedError)) return
      this.#missed(error, tick)
    }
  }

  /** Runs or skips the job of a tick that this process has got. Rejects if it could do neither. */
  async #runJob(tickLease: Lease, tick: number, end: number, run: JobRun): Promise<void> {
    const date = new Date(tick)
    if (this.#settings.overlap) {
      callListener(() => this.emit('run', date, tickLease))
      await this.#reportFailure(tick, () => run.run(() => this.#job(tickLease, date)))
      return
    }
    const lease = await this.#waitForLock(end)
    if (lease === null) {
      callListener(() => this.emit('skipped', date))
      return
    }
    await this.#keep(tickLease, lease)
    callListener(() => this.emit('run', date, lease))
    const work = (held: Lease) => run.run(() => this.#job(held, date))
    await this.#reportFailure(tick, () => runSection(this.#context, async () => lease, work))
  }

  /**
   * Makes the store remember the tick before its job begins. From then on, no process begins the
   * tick again, even if this process is killed. If the store does not answer, this process still
   * holds the lease of the tick, and the store remembers the tick after the job. Releases `lease`
   * if a lease was lost.
   *
   * @throws `LockLostError` if another process may begin the tick, or run its job.
   */
  async #keep(tickLease: Lease, lease: Lease): Promise<void> {
    try {
      await tickLease[remember](this.#settings.keptFor).catch((error) => {
        if (error instanceof LockLostError) throw error
        tickLease.assertHeld()
      })
      // The store may have taken long to answer.
      lease.assertHeld()
    } catch (error) {
      await lease.release().catch((failure) => this.#context.failed(failure))
      throw error
    }
  }

  /** Waits for the end of earlier runs. Resolves with `null` if one still runs at `end`. */
  async #waitForLock(end: number): Promise<Lease | null> {
    const { acquirer } = this.#onceContext
    const wait = this.#until(end)
    const { defaults } = acquirer
    // A schedule tries until its tick is too old, whatever the client's default is.
    const flags = withFailFast(defaults.flags, false) | Flag.Section
    const request = { ...defaults, ttl: this.#settings.ttl, wait, flags, signal: this.#ended.signal }
    try {
      return await acquirer.request(this.name, request)
    } catch (error) {
      if (error instanceof LockTimeoutError) return null
      throw error
    }
  }

  /** Returns the time until `end`, in ms. Limits it, because the clock may have been set. */
  #until(end: number): number {
    return Math.min(Math.max(end - Date.now(), 0), this.#settings.catchUp)
  }

  async #reportFailure(tick: number, work: () => Promise<unknown>): Promise<void> {
    await work().catch((error) => this.#failed(error, tick))
  }

  // If the schedule has no listener, its client reports the failure.

  #missed(error: unknown, tick: number): void {
    if (this.listenerCount('missed') > 0) callListener(() => this.emit('missed', new Date(tick), asError(error)))
    else
      this.#reportUnheard(error, { event: 'missed', told: 'tick, error', what: `the tick ${isoOf(tick)} was missed` })
  }

  #failed(error: unknown, tick: number): void {
    if (this.listenerCount('error') > 0) callListener(() => this.emit('error', asError(error), new Date(tick)))
    else this.#reportUnheard(error, { event: 'error', told: 'error, tick', what: `the tick ${isoOf(tick)} failed` })
  }

  #reportUnheard(error: unknown, { event, told, what }: { event: string; told: string; what: string }): void {
    if (this.#context.hasErrorListener()) this.#context.failed(error)
    else {
      const remedy = `schedule.on('${event}', (${told}) => …)`
      warnOnce(this, error, () => ({ who: `schedule ${quote(this.name)}`, event, remedy, what }))
    }
  }
}

const isoOf = (tick: number): string => new Date(tick).toISOString()
