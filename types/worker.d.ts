// The lock worker.

import type { LockClient } from './client'
import type { Emitter } from './emitter'
import type { LockLostError, LossReason } from './errors'
import type { Lease } from './lease'
import type { Milliseconds } from './units'

/**
 * Campaigns for a lock, and works while it holds the lock. A started worker keeps the process
 * alive.
 */
export interface LockWorker extends Emitter<LockWorkerEvents> {
  /** The current state. */
  readonly state: WorkerState
  /** The id of this worker. */
  readonly workerId: string
  /** The lease that the worker holds, or `null`. */
  readonly lease: Lease | null
  /**
   * Begins to campaign. Does nothing if the worker campaigns already. If the worker is stopping, it
   * starts again after that.
   */
  start(): this
  /**
   * Ends the work, releases the lease, and resolves when that is done. Never rejects. It waits for
   * `startWork` and `stopWork` to settle. They may call `stop()`, but must not await it: that would
   * last for `stopTimeout`, and with `Infinity` for ever. If the work outlives `stopTimeout`,
   * `stop()` resolves then: see {@link LockWorkerOptions.stopTimeout}.
   */
  stop(): Promise<void>
  /** Calls {@link stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The events of a {@link LockWorker}. */
export interface LockWorkerEvents {
  /** The worker has another state. */
  state: [state: WorkerState, previous: WorkerState]
  /** The worker holds the lock; `startWork` is next. */
  acquired: [lease: Lease]
  /** The lease was renewed. */
  renewed: [lease: Lease]
  /** The lease was lost; `stopWork` is next. */
  lost: [lease: Lease, error: LockLostError]
  /** The lease was released or detached, and its work has ended. */
  released: [lease: Lease]
  /**
   * The store, `startWork` or `stopWork` failed, and the worker goes on. If your work threw a value
   * that is no `Error`, the value is the `cause` of one. Without a listener, the error is not
   * thrown. The first error of each worker is a process warning with the code
   * `LEASEHOLD_UNHEARD_ERROR`, which Node prints.
   */
  error: [error: Error]
}

/** The options of {@link createLockWorker}. */
export interface LockWorkerOptions {
  /** The client to use. The worker does not close it. Pass either this or `store`. */
  client?: LockClient | undefined
  /**
   * Where the lock lives, if the worker has a client of its own. Default: as for {@link
   * createLockClient}.
   */
  store?: string | readonly string[] | undefined
  /**
   * The text that the worker's own client puts before the key at the store: 0 to 255 bytes. Default
   * `lock:`.
   */
  prefix?: string | undefined
  /** Which lock: 1 to 1024 bytes of well-formed Unicode without NUL. */
  key: string
  /**
   * How long a lease lives without renewal, in ms: 10 to 2 147 483 647. Default: the client's.
   * Choose at least 1000: see {@link LockClientOptions.ttl}.
   */
  ttl?: Milliseconds | undefined
  /**
   * How long the worker rests after a failure, in ms: 1 to 2 147 483 647. Default 5000. The worker
   * rests if the store can't be reached, if `startWork` fails, or if your code releases the lease.
   * Then it asks for the lock again. While the worker waits in the queue, it also checks the store
   * at this interval, and emits `'error'` if the check fails. The wait itself has no limit, and the
   * store hands the lock over at once.
   */
  retryInterval?: Milliseconds | undefined
  /**
   * The id of this worker: 1 to 255 bytes, without U+001F. It is the name of the worker's own
   * client. Default: a random UUID.
   */
  workerId?: string | undefined
  /**
   * Limits how long the work may take to end, in ms: 0 to 2 147 483 647, or `Infinity`. If the work
   * takes longer, the worker emits an `'error'` event and {@link LockWorker.stop} resolves, but
   * **the worker does not release the lock while the work still runs**. It stops renewing the
   * lease, and `lease.signal` aborts with reason `closed`. The lock is free when the work ends or
   * the ttl is over. Until the work has ended, this worker does not ask for the lock again. Default
   * 10 000.
   */
  stopTimeout?: Milliseconds | undefined
  /**
   * Begins the work. The worker calls it once per term, that is, each time it gets the lock. Its
   * promise may resolve when the work has begun, or when the whole work is done: the worker still
   * holds the lease then. If it rejects, at any time, the work has failed: `stopWork` runs, the
   * worker releases the lease and rests for `retryInterval`, so that another one may begin. If your
   * code releases or detaches the lease, the term ends likewise, as `released`.
   *
   * @param signal aborts when the work has to end, for any reason
   */
  startWork(lease: Lease, signal: AbortSignal): unknown
  /**
   * Ends the work. The worker calls it once for each `startWork`, and neither releases the lease
   * nor campaigns again until the promises of `stopWork` and `startWork` have settled.
   */
  stopWork?: ((reason: StopReason) => unknown) | undefined
}

/**
 * The state of a worker. `idle`: not started, or stopped. `acquiring`: asks for the lock.
 * `waiting`: waits in the queue for the lock, or rests after a failure. `working`: holds the lock.
 * `pausing`: ends its work because the lease was lost or released, or `startWork` failed.
 * `cleanup`: ends its work because it was stopped. `releasing`: releases the lease.
 */
export type WorkerState = 'idle' | 'acquiring' | 'waiting' | 'working' | 'pausing' | 'cleanup' | 'releasing'

/**
 * Why work has to end. `stopped`: by {@link LockWorker.stop}. `failed`: `startWork` threw or
 * rejected. `released`: your code called {@link Lease.release} or {@link Lease.detach} (or left an
 * `await using` of the lease). The other reasons say why the lease was lost.
 */
export type StopReason = 'stopped' | 'failed' | 'released' | LossReason
