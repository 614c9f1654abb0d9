// The messages on Node's diagnostics_channel. docs/observability.md says when they are published,
// and shows how to listen.

import type { LockClient } from './client'
import type { LockLostError, LossReason, StoreUnavailableReason } from './errors'
import type { StoreHealth } from './info'
import type { Milliseconds } from './units'
import type { LockWorker, WorkerState } from './worker'

/**
 * The channels, by name, and their messages. The names that begin with `tracing:` are the five
 * channels of `diagnostics_channel.tracingChannel('leasehold:acquire')` and of the other tracing
 * channels: `start` and `end` around the call, then `asyncStart` and `asyncEnd` around its
 * settling, and before these `error` if the call rejects. All five get the same message, which
 * leasehold fills in on the way. No message has a token or a ticket.
 *
 * leasehold reports a lease if any of these channels, except those of workers and breakers, had a
 * listener when the call asked for the lease.
 */
export interface LeaseholdChannels {
  /**
   * A call for a lock: acquire(), tryAcquire(), withLock(), adopt(), or a worker's. Calls with bad
   * arguments are not reported.
   */
  'tracing:leasehold:acquire:start': AcquireMessage
  'tracing:leasehold:acquire:end': AcquireMessage
  'tracing:leasehold:acquire:asyncStart': AcquireMessage
  'tracing:leasehold:acquire:asyncEnd': AcquireMessage
  'tracing:leasehold:acquire:error': AcquireMessage
  /** A call of {@link Lease.renew}. */
  'tracing:leasehold:renew:start': RenewMessage
  'tracing:leasehold:renew:end': RenewMessage
  'tracing:leasehold:renew:asyncStart': RenewMessage
  'tracing:leasehold:renew:asyncEnd': RenewMessage
  'tracing:leasehold:renew:error': RenewMessage
  /** A release: by {@link Lease.release}, at the end of withLock(), or by a worker. */
  'tracing:leasehold:release:start': ReleaseMessage
  'tracing:leasehold:release:end': ReleaseMessage
  'tracing:leasehold:release:asyncStart': ReleaseMessage
  'tracing:leasehold:release:asyncEnd': ReleaseMessage
  'tracing:leasehold:release:error': ReleaseMessage
  /**
   * A caller got a lease. Exactly one of `released` and `lost` follows, unless the process ends
   * first.
   */
  'leasehold:granted': LeaseMessage
  /**
   * The engine renewed a lease. Published only for leases that were asked for while this channel
   * had a listener.
   */
  'leasehold:renewed': LeaseMessage
  /** The holder called release(), or detach() succeeded. The same message as that of `granted`. */
  'leasehold:released': LeaseMessage
  /**
   * A lease was lost: it ended although its holder had not released it. The same message as that of
   * `granted`.
   */
  'leasehold:lost': LeaseMessage
  /** A server of the store is gone, refuses, or is back: see {@link LockClientEvents.breaker}. */
  'leasehold:breaker': BreakerMessage
  /** A worker has another state: see {@link LockWorkerEvents.state}. */
  'leasehold:worker': WorkerMessage
}

/** The store, as messages and metrics name it. */
export interface StoreIdentity {
  readonly kind: 'memory' | 'sqlite' | 'redis' | 'redis-sentinel' | 'redis-cluster' | 'quorum'
  /** The URL of the store without a password; for a quorum, the URLs with commas between them. */
  readonly url: string
}

/** The part that all messages of a client have. */
export interface ClientMessage {
  readonly client: LockClient
  /** The client's {@link LockClientOptions.name}. */
  readonly name: string
  readonly store: StoreIdentity
}

/**
 * The kind of a lock. `exclusive`: one holder. `read`: together with other readers. `semaphore`: as
 * many holders as there are permits.
 */
export type LockMode = 'exclusive' | 'read' | 'semaphore'

/** The part that all tracing messages have at the end of the call. */
export interface Ending<Outcome extends string> {
  /** How the call ended. This and the following properties are missing until then. */
  outcome?: Outcome
  /** How long the call took, in ms. */
  duration?: Milliseconds
  /** The error with which the call rejected. */
  error?: Error
  /** The reason of the error, if it is known. */
  reason?: LossReason | StoreUnavailableReason | 'quorum'
}

/**
 * How a call for a lock ended. `busy`: with `null`. `failed`: with an error that is no
 * {@link LockError}.
 */
export type AcquireOutcome = 'acquired' | 'busy' | FailureOutcome

/** How a call that rejected ended, by the class of its error. */
export type FailureOutcome = 'timeout' | 'aborted' | 'lost' | 'unavailable' | 'closed' | 'released' | 'failed'

/** A call for a lock, or for several. */
export interface AcquireMessage extends ClientMessage, Ending<AcquireOutcome> {
  readonly method: 'acquire' | 'tryAcquire' | 'adopt' | 'worker' | 'once'
  /** Which lock; the first of `keys`. */
  readonly key: string
  /** Which locks; more than one only if the call asked for several. */
  readonly keys: readonly string[]
  /**
   * The kind of the lock. For `adopt`, this is the mode in the ticket until the call has the lease,
   * and then the mode of the lease.
   */
  readonly mode: LockMode
  /** The ttl that the call asks for, in ms. */
  readonly ttl: Milliseconds
  /** How long the call may wait, in ms or `Infinity`; 0 if it does not wait. */
  readonly wait: Milliseconds
  /** How often the call has tried: 1, or more with {@link AcquireOptions.retry}. */
  tries: number
  /** The fence of `key`, if the lock was acquired. */
  fence?: number
  /** The messages of the leases, if the lock was acquired: those that `granted` publishes. */
  leases?: readonly LeaseMessage[]
}

/**
 * One lease, from its grant to its end. It is always the same object, so it can be the key of a
 * WeakMap.
 */
export interface LeaseMessage extends ClientMessage {
  readonly key: string
  readonly mode: LockMode
  /** The ttl that the lease had at its grant, in ms. */
  readonly ttl: Milliseconds
  readonly fence: number
  /** How often the engine has renewed the lease, as far as `renewed` had a listener. */
  renewals: number
  /** How the lease ended. This and the following properties are missing while it is held. */
  outcome?: 'released' | 'detached' | 'lost'
  /** How long the lease was held, in ms. */
  held?: Milliseconds
  /** The error that the holder gets if the lease is lost. */
  error?: LockLostError
  /** Why the lease was lost. */
  reason?: LossReason
}

/** A renewal by {@link Lease.renew}. */
export interface RenewMessage extends Ending<'renewed' | FailureOutcome> {
  readonly lease: LeaseMessage
  /** The ttl that the call asks for, in ms. */
  readonly ttl: Milliseconds
}

/** A release. `gone`: the lease had already ended. */
export interface ReleaseMessage extends Ending<'released' | 'gone' | FailureOutcome> {
  readonly lease: LeaseMessage
}

/** The state of a server of the store. */
export interface BreakerMessage extends ClientMessage {
  readonly health: StoreHealth
}

/** The state of a worker. */
export interface WorkerMessage {
  readonly worker: LockWorker
  readonly workerId: string
  readonly key: string
  readonly state: WorkerState
  readonly previous: WorkerState
}
