// Work that is done once in the cluster: for an id, or at each tick of a clock.

import type { Emitter } from './emitter'
import type { Lease } from './lease'
import type { Milliseconds } from './units'

/** The options of {@link LockClient.once}. */
export interface OnceOptions {
  /**
   * How long the store remembers the id after `fn` has ended, in ms: `ttl` to 2 147 483 647. Choose
   * a longer time than the delay with which a call with the same id may come. Default 3 600 000
   * (1 h), or `ttl` if that is more.
   */
  keep?: Milliseconds | undefined
  /**
   * How long the lease lives without renewal, in ms: 10 to 2 147 483 647. If the process crashes,
   * no other call runs `fn` for this long. Default: the client's. Choose at least 1000: see
   * {@link LockClientOptions.ttl}.
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
   * What the store remembers if `fn` throws. `forget`: nothing, and the next call runs `fn`.
   * `keep`: the id, as if `fn` had succeeded, and no call runs `fn`. Default `forget`.
   */
  onFailure?: 'forget' | 'keep' | undefined
  /**
   * Ends the attempts to get the lock: the call rejects with {@link LockAbortedError}. Once `fn`
   * runs, the signal has no effect.
   */
  signal?: AbortSignal | undefined
}

/** The result of {@link LockClient.once}. */
export type OnceOutcome<T> =
  | {
      /** `fn` ran here. */
      ran: true
      /** The value that `fn` returned. */
      value: T
      /**
       * Whether the store remembers the id for `keep`. It is `false` in four cases. The lease was
       * lost before the store had the id. The client's drain ended while the store could not be
       * reached. The client's user lost the right to make the store remember the id. Or `fn`
       * released or detached the lease itself. In the first three cases, another client may have
       * run `fn`, too, or may still run it, and the client's `'error'` event has the cause.
       */
      kept: boolean
    }
  | {
      /** Another call has run it, or is about to. */
      ran: false
      value?: undefined
      kept?: undefined
    }

/**
 * The job of a {@link Schedule}.
 *
 * @param lease The lease of the lock with the schedule's name: its fence grows from run to run.
 * With `overlap`, it is the lease of the tick, whose fence can't be compared with those of other
 * ticks.
 * @param tick The instant at which the tick was due, not the one at which the job began.
 */
export type ScheduledJob = (lease: Lease, tick: Date) => unknown

/** A job at the ticks of a clock, once in the cluster: see {@link LockClient.schedule}. */
export interface Schedule extends Emitter<ScheduleEvents> {
  /** The name of the job. */
  readonly name: string
  /** The next tick; `null` if the schedule is stopped, or has no more ticks. */
  readonly next: Date | null
  /**
   * Asks for no more ticks. Resolves when the jobs that run in this process have ended and the
   * store remembers their ticks. If the store is down, `stop()` resolves 2000 ms after the jobs
   * have ended, and the client keeps trying until the drain of {@link LockClient.close} ends. Never
   * rejects. Other processes go on.
   *
   * If a job (or anything that it has started) calls `stop()`, the call does not wait for that
   * job's run. The run goes on, with its lock, until the job has ended. The call waits for the
   * other runs, except those that also wait in `stop()`, here or at another schedule.
   */
  stop(): Promise<void>
  /** Calls {@link stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * The events of a {@link Schedule}. Each is emitted in one process. Runs of other processes cause
 * no event.
 */
export interface ScheduleEvents {
  /** This process has the tick, and the job begins. */
  run: [tick: Date, lease: Lease]
  /**
   * This process had the tick, but did not run the job, because the job of another tick did not end
   * in time. No other process runs it.
   */
  skipped: [tick: Date]
  /**
   * This process did not ask for the tick in time, or the store did not answer in time (the error
   * says why). Another process may have run the tick. After a pause over several ticks, the event
   * is emitted once, for the first of them. Without a listener, the client emits an error as
   * `'error'`; its `key` is `NAME@once:TICK`.
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

/** The options of {@link LockClient.schedule}. Use the same ones in all processes. */
export interface ScheduleOptions {
  /**
   * The time zone of the pattern, such as `Europe/Berlin`. Default `UTC`, whatever the time zone of
   * the process is.
   */
  timeZone?: string | undefined
  /**
   * Whether the job may run for a tick while it still runs for another one. Default `false`: such a
   * tick waits for the other run, and is skipped when the next tick comes or it is `catchUp` old.
   */
  overlap?: boolean | undefined
  /**
   * How late a tick may begin, in ms, if the store or the process was away or another run has to
   * end: 1000 to 1 073 741 823. Of several late ticks, the schedule asks only for the last one, and
   * for none once the next tick has come. A schedule that starts this soon after a tick asks for
   * it. Default 10 000.
   */
  catchUp?: Milliseconds | undefined
  /**
   * The least time for which the store remembers that a tick was run, in ms: at least `ttl` and
   * twice `catchUp`, up to 2 147 483 647. The store remembers it for up to 1.5 times as long.
   * Choose a longer time than the difference of any two clocks. Default 3 600 000 (1 h), or twice
   * `catchUp` or `ttl` if that is more.
   */
  keep?: Milliseconds | undefined
  /**
   * How long the leases live without renewal, in ms: 10 to 2 147 483 647. Default: the client's.
   * Choose at least 1000: see {@link LockClientOptions.ttl}.
   */
  ttl?: Milliseconds | undefined
  /**
   * Whether the process may end while the schedule only waits for its next tick. Default `false`.
   */
  unref?: boolean | undefined
}
