// A job at the ticks of a cron pattern, each of which one process of the cluster takes. See docs/cron.md for what that means.

import type * as api from '../index'
import type { Host } from './acquirer'
import {
  badValue,
  checkBoolean,
  checkFunction,
  checkKey,
  checkMs,
  checkTtl,
  MAX_MS,
  outOfRange,
  readOptions,
} from './arguments'
import type { Desk } from './claim'
import { Cron } from './cron'
import { defineDispose } from './dispose'
import { Emitter } from './emitter'
import { LockAbortedError, LockClosedError, LockLostError, LockTimeoutError, quote } from './errors'
import type { Lease } from './lease'
import { Flag, withFailFast } from './native'
import { checkKeep, KEEP, markerOf, runOnce } from './once'
import { guarded } from './rethrow'
import { runWith } from './section'
import { asError } from './thrown'
import { Turn } from './turn'
import { warnOnce } from './unheard'

/** How long to sleep at most: a clock may be set, and a machine that was asleep has to notice. */
const MAX_SLEEP = 5_000
/** How far a clock may go back before what it told is taken for a mistake. */
const SET_BACK = 60_000
/**
 * How long {@link Schedule.stop} waits for the store to remember a tick after its job has ended, in
 * ms. If this is larger, a store that is down delays the end of the process for longer. If it is
 * smaller, the process may end just before a slow store remembers the tick.
 */
const MARKING = 2_000
/** What any instant makes no longer key than. */
const LONGEST_ID = '8640000000000000'

const SCHEDULE_OPTIONS = [
  'timeZone',
  'overlap',
  'catchUp',
  'keep',
  'ttl',
  'unref',
] as const satisfies (keyof api.ScheduleOptions)[]

interface Settings {
  readonly overlap: boolean
  readonly catchUp: number
  readonly keep: number
  readonly ttl: number
  readonly unref: boolean
}

function parse(given: unknown, { acquirer }: Desk): Settings & { timeZone: string } {
  const options = readOptions<api.ScheduleOptions>(given, SCHEDULE_OPTIONS)
  const { timeZone = 'UTC', overlap = false, catchUp = 10_000, ttl = acquirer.defaults.ttl, unref = false } = options
  checkBoolean('overlap', overlap)
  checkMs('catchUp', catchUp, 1_000, Math.floor(MAX_MS / 2))
  checkTtl(ttl)
  checkBoolean('unref', unref)
  const keep = checkKeep(options.keep, ttl, Math.max(KEEP, 2 * catchUp))
  // Who asks for a tick that nobody remembers runs it again.
  if (keep < 2 * catchUp) throw outOfRange('keep', `>= 2 * catchUp, which is ${2 * catchUp}`, keep)
  return { timeZone, overlap, catchUp, ttl, unref, keep }
}

export class Schedule extends Emitter<api.ScheduleEvents> implements api.Schedule {
  readonly name: string
  readonly #host: Host
  readonly #desk: Desk
  readonly #cron: Cron
  readonly #job: api.ScheduledJob
  readonly #settings: Settings
  /** Up to here the ticks were seen to, in ms since 1970. */
  #seen: number
  /** The first tick after that. */
  #next: number | undefined
  #timer: NodeJS.Timeout | undefined
  /** Ends the asking, when it is stopped. */
  readonly #ended = new AbortController()
  /** What is being asked for or done; none of them rejects. */
  readonly #turns = new Set<Turn>()
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(Schedule.prototype, (schedule) => schedule.stop())
  }

  constructor(host: Host, desk: Desk, name: string, cron: string, job: api.ScheduledJob, options: unknown) {
    checkKey(name, 'name')
    host.checkNames(name)
    markerOf(name, LONGEST_ID)
    const { timeZone, ...settings } = parse(options, desk)
    const ticks = new Cron(cron, timeZone)
    checkFunction('fn', job)
    host.checkOpen(name)
    // Of two with the same ticks one would never run, and nobody would hear of it.
    if (host.schedules.has(name)) {
      throw badValue(
        `This client has a schedule ${quote(name)} already. Stop that first, or give this one a name of its own: ` +
          'all schedules of one name, in whatever process, are the same job',
      )
    }
    super()
    this.name = name
    this.#host = host
    this.#desk = desk
    this.#cron = ticks
    this.#job = job
    this.#settings = settings
    const now = Date.now()
    // The process may have been started again across a tick. If others were there, they have taken it.
    const past = ticks.last(now - settings.catchUp, now)
    this.#seen = past === undefined ? now : past - 1
    host.schedules.add(name)
    host.pauses.add(this.#end)
    this.#sleep()
  }

  get next(): Date | null {
    return this.#next === undefined ? null : new Date(this.#next)
  }

  async stop(): Promise<void> {
    this.#end()
    const caller = Turn.current
    if (caller === undefined) {
      await Promise.all([...this.#turns].map((turn) => turn.overWithin(MARKING)))
      return
    }
    caller.leave()
    await Promise.all([...this.#turns].map((turn) => turn.leftWithin(MARKING)))
  }

  /** Also called when the client is closed. */
  readonly #end = (): void => {
    // Then its name may be that of the next one.
    if (this.#ended.signal.aborted) return
    clearTimeout(this.#timer)
    this.#next = undefined
    this.#host.schedules.delete(this.name)
    this.#host.pauses.delete(this.#end)
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
      // It was asleep, or blocked; of many ticks, only the last is worth asking for.
      if (tick !== due) guarded(() => this.emit('missed', new Date(due), null))
    }
    // A listener may have stopped it.
    if (!this.#ended.signal.aborted) this.#sleep()
  }

  #begin(tick: number): void {
    const turn = new Turn((turn) => this.#turn(tick, turn).finally(() => this.#turns.delete(turn)))
    this.#turns.add(turn)
  }

  /** Asks for the tick, until the next one comes or it is too old, and does the job if nobody else has it. */
  async #turn(tick: number, turn: Turn): Promise<void> {
    const { ttl, keep, catchUp, overlap } = this.#settings
    const end = Math.min(tick + catchUp, this.#cron.next(tick) ?? Number.POSITIVE_INFINITY)
    const { signal } = this.#ended
    const deed = {
      key: markerOf(this.name, String(tick)),
      ttl,
      keep,
      wait: this.#until(end),
      signal,
      // A process that stops while it waits for its turn gives the tick back, so a short lease does
      // not count as taken. That process may have a longer ttl than this one. The lease of a kept
      // tick still lasts at least half of `keep`, because `keep` is at least twice `catchUp`.
      ...(overlap ? {} : { keptAbove: Math.max(ttl, keep / 2) }),
      // What the job throws does not get that far: a failure here means that it was not begun.
      onFailure: 'forget' as const,
      work: (lease: Lease) => this.#take(lease, tick, end, turn).finally(() => turn.worked()),
      failed: (error: unknown) => this.#failed(error, tick),
    }
    try {
      await runOnce(this.#desk, deed)
    } catch (error) {
      if (signal.aborted && (error instanceof LockAbortedError || error instanceof LockClosedError)) return
      this.#missed(error, tick)
    }
  }

  /** The tick is this process's: whatever becomes of it is decided here. Rejects if nothing was. */
  async #take(mark: Lease, tick: number, end: number, turn: Turn): Promise<void> {
    const date = new Date(tick)
    if (this.#settings.overlap) {
      guarded(() => this.emit('run', date, mark))
      await this.#guard(tick, () => turn.run(() => this.#job(mark, date)))
      return
    }
    const lease = await this.#waitTurn(end)
    if (lease === null) {
      guarded(() => this.emit('skipped', date))
      return
    }
    await this.#keep(mark, lease)
    guarded(() => this.emit('run', date, lease))
    const work = (held: Lease) => turn.run(() => this.#job(held, date))
    await this.#guard(tick, () => runWith(this.#host, async () => lease, work))
  }

  /**
   * Makes the store remember the tick before its job begins. From then on, no process begins the
   * tick again, even if this process is killed. If the store does not answer, this process still
   * holds the mark, and the store remembers the tick after the job. Releases `lease` if a lease was
   * lost.
   *
   * @throws `LockLostError` if another process may begin the tick, or run its job.
   */
  async #keep(mark: Lease, lease: Lease): Promise<void> {
    try {
      await mark.detach(this.#settings.keep).catch((error) => {
        if (error instanceof LockLostError) throw error
        mark.assertHeld()
      })
      // The store may have taken long to answer.
      lease.assertHeld()
    } catch (error) {
      await lease.release().catch((failure) => this.#host.failed(failure))
      throw error
    }
  }

  /** Waits until no earlier run is under way any more; `null`: until `end` one was. */
  async #waitTurn(end: number): Promise<Lease | null> {
    const { acquirer } = this.#desk
    const wait = this.#until(end)
    const { defaults } = acquirer
    // A schedule tries until its tick is too old, whatever the client's default is.
    const flags = withFailFast(defaults.flags, false) | Flag.Section
    const asked = { ...defaults, ttl: this.#settings.ttl, wait, flags, signal: this.#ended.signal }
    try {
      return await acquirer.request(this.name, asked)
    } catch (error) {
      if (error instanceof LockTimeoutError) return null
      throw error
    }
  }

  /** How long it is until then; the clock may have been set since that was found. */
  #until(end: number): number {
    return Math.min(Math.max(end - Date.now(), 0), this.#settings.catchUp)
  }

  async #guard(tick: number, work: () => Promise<unknown>): Promise<void> {
    await work().catch((error) => this.#failed(error, tick))
  }

  // If the schedule has no listener, its client reports the failure.

  #missed(error: unknown, tick: number): void {
    if (this.listenerCount('missed') > 0) guarded(() => this.emit('missed', new Date(tick), asError(error)))
    else this.#unheard(error, { event: 'missed', told: 'tick, error', what: `the tick ${isoOf(tick)} was missed` })
  }

  #failed(error: unknown, tick: number): void {
    if (this.listenerCount('error') > 0) guarded(() => this.emit('error', asError(error), new Date(tick)))
    else this.#unheard(error, { event: 'error', told: 'error, tick', what: `the tick ${isoOf(tick)} failed` })
  }

  #unheard(error: unknown, { event, told, what }: { event: string; told: string; what: string }): void {
    if (this.#host.hearsErrors()) this.#host.failed(error)
    else {
      const remedy = `schedule.on('${event}', (${told}) => …)`
      warnOnce(this, error, () => ({ who: `schedule ${quote(this.name)}`, event, remedy, what }))
    }
  }
}

const isoOf = (tick: number): string => new Date(tick).toISOString()
