// What is done once in the cluster: for an id, or at each tick of a clock.

import type { Emitter } from './emitter'
import type { Lease } from './lease'
import type { Milliseconds } from './units'

/** What {@link LockClient.once} takes beside what is to be done. */
export interface OnceOptions {
  /**
   * For how long the id is remembered after `fn` has ended: `ttl` to 2 147 483 647. It has to be longer than anybody may come late
   * with the same id. Default 3 600 000 (an hour), or `ttl` if that is more.
   */
  keep?: Milliseconds | undefined
  /**
   * How long the lease lives without renewal, in ms. If a process crashes, others can't try for
   * this long. Default: the client's.
   */
  ttl?: Milliseconds | undefined
  /**
   * How long the call tries again if the store fails, in ms: 0 to 2 147 483 647, or `Infinity`.
   * Default: the client's.
   */
  wait?: Milliseconds | undefined
  /**
   * Whether the call rejects, rather than tries again, while the store can't grant leases: see
   * {@link AcquireOptions.failFast}. Default: the client's.
   */
  failFast?: boolean | undefined
  /**
   * What is left of an `fn` that throws. `forget`: nothing, and whoever asks next tries. `keep`: the id is remembered as if `fn` had
   * succeeded, and nobody tries. Default `forget`.
   */
  onFailure?: 'forget' | 'keep' | undefined
  /**
   * Ends the attempts to get the lock: the call rejects with {@link LockAbortedError}. Once `fn`
   * runs, the signal has no effect.
   */
  signal?: AbortSignal | undefined
}

/** What became of {@link LockClient.once}. */
export type OnceOutcome<T> =
  | {
      /** `fn` ran here. */
      ran: true
      /** What it returned. */
      value: T
      /**
       * Whether the store remembers the id for `keep`. It is `false` in three cases. The lease was
       * lost before the store had the id. The client's drain ended while the store could not be
       * reached. Or `fn` released or detached the lease itself. In the first two cases, another
       * client may have run `fn`, too, or may still run it, and the client's `'error'` event has
       * the cause.
       */
      kept: boolean
    }
  | {
      /** Somebody else has run it, or is about to. */
      ran: false
      value?: undefined
      kept?: undefined
    }

/**
 * What a {@link Schedule} runs.
 *
 * @param lease That of the lock of the schedule's name: its fence grows from run to run. With `overlap` that of the tick, whose
 * fences say nothing of other ticks.
 * @param tick For which tick: the instant at which it was due, not the one at which it came to run.
 */
export type ScheduledJob = (lease: Lease, tick: Date) => unknown

/** A job at the ticks of a clock, once in the cluster: see {@link LockClient.schedule}. */
export interface Schedule extends Emitter<ScheduleEvents> {
  /** What is done. */
  readonly name: string
  /** The tick that is waited for; `null` if it is stopped, or there is none any more. */
  readonly next: Date | null
  /**
   * Asks for no more ticks. Resolves when the jobs that run in this process have ended and the store
   * remembers their ticks. If the store is down, `stop()` resolves 2000 ms after the jobs have ended,
   * and the client keeps trying until the drain of {@link LockClient.close} ends. Never rejects. Other
   * processes go on.
   *
   * If a job (or anything that it has started) calls `stop()`, the call does not wait for that job's
   * run. The run goes on, with its lock, until the job has ended. The call waits for the other runs,
   * except those that also wait in `stop()`, here or at another schedule.
   */
  stop(): Promise<void>
  /** {@link stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The events of a {@link Schedule}, each told in one process. What others have run is none. */
export interface ScheduleEvents {
  /** This process has the tick, and the job begins. */
  run: [tick: Date, lease: Lease]
  /**
   * This process had the tick, but did not run the job, because the job of another tick did not end
   * in time. No other process runs it.
   */
  skipped: [tick: Date]
  /**
   * This process did not ask for the tick in time, or the store did not answer in time (the error says how it failed); others may
   * have run it. Where it slept over several ticks, told once, of the first of them. Without a listener, an error is the client's
   * `'error'` event; its `key` is `NAME@once:TICK`.
   */
  missed: [tick: Date, error: Error | null]
  /**
   * The job of the tick failed, or lost its lease: no other process tries again. Or the store could
   * not record that the tick was run. If the job threw a value that is no `Error`, the value is the
   * `cause` of one. Without a listener, the client emits `'error'`. If the client has no listener
   * either, the first error of each schedule is a process warning with the code
   * `LEASEHOLD_UNHEARD_ERROR`, which Node prints.
   */
  error: [error: Error, tick: Date]
}

/** What {@link LockClient.schedule} takes beside the job. The same in all processes. */
export interface ScheduleOptions {
  /**
   * The time zone of the pattern, such as `Europe/Berlin`. Default `UTC`, whatever the time zone of
   * the process is.
   */
  timeZone?: string | undefined
  /**
   * Whether the job may run for a tick while it still runs for another one. Default `false`: such a tick waits for that, and is
   * skipped when the next one has come or it is `catchUp` old.
   */
  overlap?: boolean | undefined
  /**
   * How late a tick may begin, if the store or the process was away or another run has to end: 1000 to 1 073 741 823. Of several ticks only the last is asked
   * for, and none any more when the next has come. A schedule that is started this soon after a tick asks for it. Default 10 000.
   */
  catchUp?: Milliseconds | undefined
  /**
   * For how long the store remembers that a tick was run: `ttl` and twice `catchUp`, at least, to 2 147 483 647. It has to be longer
   * than `catchUp` and the difference of any two clocks together. Default 3 600 000 (an hour), or twice `catchUp` if that is more.
   */
  keep?: Milliseconds | undefined
  /** How long the leases live without renewal: 10 to 2 147 483 647. Default: the client's. */
  ttl?: Milliseconds | undefined
  /** Whether the process may end while this only waits for its next tick. Default `false`. */
  unref?: boolean | undefined
}
