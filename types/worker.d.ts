// The lock worker.

import type { LockClient } from './client'
import type { Emitter } from './emitter'
import type { LockLostError, LossReason } from './errors'
import type { Lease } from './lease'
import type { Milliseconds } from './units'

/** Campaigns for a lock and works while it holds it. While it is started it keeps the process alive. */
export interface LockWorker extends Emitter<LockWorkerEvents> {
  /** What it is doing. */
  readonly state: WorkerState
  /** Which one it is. */
  readonly workerId: string
  /** The lease that it holds now, if it does. */
  readonly lease: Lease | null
  /** Begins to campaign. Does nothing if it does so already. While it stops, it starts again after that. */
  start(): this
  /**
   * Ends the work, releases the lease, and resolves when that is done. Never rejects. It waits for
   * `startWork` and `stopWork` to settle. They may call it, but must not await it: that would last
   * for `stopTimeout`, and with `Infinity` for ever. If the work outlives `stopTimeout`, `stop()`
   * resolves then: see {@link LockWorkerOptions.stopTimeout}.
   */
  stop(): Promise<void>
  /** {@link stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The events of a {@link LockWorker}. */
export interface LockWorkerEvents {
  /** It does something else now. */
  state: [state: WorkerState, previous: WorkerState]
  /** It holds the lock; `startWork` is next. */
  acquired: [lease: Lease]
  /** The lease was renewed. */
  renewed: [lease: Lease]
  /** The lease was lost; `stopWork` is next. */
  lost: [lease: Lease, error: LockLostError]
  /** The lease was given back or detached, and its work has ended. */
  released: [lease: Lease]
  /**
   * The store, `startWork` or `stopWork` failed, and the worker goes on. If your work threw a value
   * that is no `Error`, the value is the `cause` of one. Without a listener, the error is not
   * thrown. The first error of each worker is a process warning with the code
   * `LEASEHOLD_UNHEARD_ERROR`, which Node prints.
   */
  error: [error: Error]
}

/** What {@link createLockWorker} takes. */
export interface LockWorkerOptions {
  /** The client to use; it is left open. Either this or `store`. */
  client?: LockClient | undefined
  /** Where the lock lives, for a client of the worker's own. Default: as for {@link createLockClient}. */
  store?: string | readonly string[] | undefined
  /** Put before the key in the store by the worker's own client: 0 to 255 bytes. Default `lock:`. */
  prefix?: string | undefined
  /** Which lock: 1 to 1024 bytes of well-formed Unicode without NUL. */
  key: string
  /** How long a lease lives without renewal: 10 to 2 147 483 647. Default: the client's. */
  ttl?: Milliseconds | undefined
  /**
   * How often to look again while somebody else holds the lock, and how long to rest when the store cannot be
   * reached, `startWork` failed or the lease was released under it: 1 to 2 147 483 647. That somebody else releases
   * the lock is noticed without it. Default 5000.
   */
  retryInterval?: Milliseconds | undefined
  /** Tells this worker from others; 1 to 255 bytes, without U+001F. Names the worker's own client. Default: a random UUID. */
  workerId?: string | undefined
  /**
   * Limits how long the work may take to end, in ms: 0 to 2 147 483 647, or `Infinity`. Default
   * 10 000. If the work takes longer, the worker emits an `'error'` event and {@link LockWorker.stop}
   * resolves, but **the worker does not release the lock while the work still runs**. It stops
   * renewing the lease, and `lease.signal` aborts with reason `closed`. The lock is free when the
   * work ends or the ttl is over. Until the work has ended, this worker does not ask for the lock
   * again.
   */
  stopTimeout?: Milliseconds | undefined
  /**
   * Begins the work; called once per tenure. Its promise may be that of the beginning or that of the whole
   * work: when it resolves, the worker still holds the lease. When it rejects, at any time, the work has failed:
   * `stopWork` runs, the lease is released and others get their chance for `retryInterval`. To release the lease
   * or detach it ends the tenure likewise, as `released`.
   *
   * @param signal aborts when the work has to end, for whatever reason
   */
  startWork(lease: Lease, signal: AbortSignal): unknown
  /**
   * Ends the work; called once for each `startWork`. The worker neither releases the lease nor
   * campaigns again until the promises of `stopWork` and `startWork` have settled.
   */
  stopWork?: ((reason: StopReason) => unknown) | undefined
}

/**
 * `idle`: not started. `acquiring`: asks for the lock. `waiting`: in line for it, or resting after a failure.
 * `working`: holds it. `pausing`: ends its work because the lease was lost or released, or `startWork` failed. `cleanup`:
 * ends its work because it was stopped. `releasing`: gives the lease back.
 */
export type WorkerState = 'idle' | 'acquiring' | 'waiting' | 'working' | 'pausing' | 'cleanup' | 'releasing'

/**
 * Why work has to end: `stopped` by {@link LockWorker.stop}, `failed` by itself, `released` by somebody who called
 * {@link Lease.release} or {@link Lease.detach} (or left an `await using` of the lease), or why the lease was lost.
 */
export type StopReason = 'stopped' | 'failed' | 'released' | LossReason
