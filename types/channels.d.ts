// What is told on Node's diagnostics_channel. docs/observability.md says when, and shows how to listen.

import type { LockClient } from './client'
import type { LockLostError, LossReason, StoreUnavailableReason } from './errors'
import type { StoreHealth } from './told'
import type { Milliseconds } from './units'
import type { LockWorker, WorkerState } from './worker'

/**
 * The channels, by name, and the messages that are published there. Those that begin with `tracing:` are the five of
 * `diagnostics_channel.tracingChannel('leasehold:acquire')` and the like: `start` and `end` around the call, then `asyncStart`
 * and `asyncEnd` around its settling, and before these `error` if it rejects. All five get one and the same message, which is
 * filled in on the way. No message has a token, or a ticket.
 *
 * A lease is followed if somebody listened to any of these channels, but those of workers and breakers, when it was asked for.
 */
export interface LeaseholdChannels {
  /** A call for a lock: acquire(), tryAcquire(), withLock(), adopt(), or a worker's. Not those with bad arguments. */
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
  /** A lease is given back: by {@link Lease.release}, at the end of withLock(), or by a worker. */
  'tracing:leasehold:release:start': ReleaseMessage
  'tracing:leasehold:release:end': ReleaseMessage
  'tracing:leasehold:release:asyncStart': ReleaseMessage
  'tracing:leasehold:release:asyncEnd': ReleaseMessage
  'tracing:leasehold:release:error': ReleaseMessage
  /** A lease was handed to its caller. Exactly one of `released` and `lost` follows, unless the process ends first. */
  'leasehold:granted': LeaseMessage
  /** A lease was renewed by itself. Only of leases that were asked for while somebody listened to this very channel. */
  'leasehold:renewed': LeaseMessage
  /** Its holder gave a lease up: release() was called, or detach() succeeded. The same message as that of `granted`. */
  'leasehold:released': LeaseMessage
  /** A lease was lost: its holder did not want that. The same message as that of `granted`. */
  'leasehold:lost': LeaseMessage
  /** A server of the store is gone, or back: as {@link LockClientEvents.breaker}. */
  'leasehold:breaker': BreakerMessage
  /** A worker does something else now: as {@link LockWorkerEvents.state}. */
  'leasehold:worker': WorkerMessage
}

/** Which store, as messages and metrics name it. */
export interface StoreIdentity {
  readonly kind: 'memory' | 'sqlite' | 'redis' | 'redis-sentinel' | 'redis-cluster' | 'quorum'
  /** Its URL without a password; those of a quorum with commas between them. */
  readonly url: string
}

/** What all messages of a client say. */
export interface ClientMessage {
  readonly client: LockClient
  /** Its {@link LockClientOptions.name}. */
  readonly name: string
  readonly store: StoreIdentity
}

/** `exclusive`: alone. `read`: with all others who read. `semaphore`: with as many as there are permits. */
export type LockMode = 'exclusive' | 'read' | 'semaphore'

/** What all tracing messages say when it is over. */
export interface Ending<Outcome extends string> {
  /** How it ended; missing until then, as what follows. */
  outcome?: Outcome
  /** How long it took, in ms. */
  duration?: Milliseconds
  /** What it rejected with. */
  error?: Error
  /** Why, in a word, if that is known. */
  reason?: LossReason | StoreUnavailableReason | 'quorum'
}

/** How a call for a lock ended. `busy`: with `null`. `failed`: with an error that is none of this library's. */
export type AcquireOutcome = 'acquired' | 'busy' | FailureOutcome

/** How a call ended that rejected: by the class of the error. */
export type FailureOutcome = 'timeout' | 'aborted' | 'lost' | 'unavailable' | 'closed' | 'released' | 'failed'

/** A call for a lock, or for several. */
export interface AcquireMessage extends ClientMessage, Ending<AcquireOutcome> {
  readonly method: 'acquire' | 'tryAcquire' | 'adopt' | 'worker' | 'once'
  /** Which lock; the first of `keys`. */
  readonly key: string
  /** Which locks: more than one only of those who asked for several. */
  readonly keys: readonly string[]
  readonly mode: LockMode
  readonly ttl: Milliseconds
  /** How long it may wait, in ms or `Infinity`; 0 of those who do not wait. */
  readonly wait: Milliseconds
  /** How often it was tried: 1, or more with {@link AcquireOptions.retry}. */
  tries: number
  /** The fence of `key`, if it was acquired. */
  fence?: number
  /** The messages of the leases, if it was acquired: those that `granted` is told. */
  leases?: readonly LeaseMessage[]
}

/** One lease, from its grant to its end: always the same object, so that it can be the key of a WeakMap. */
export interface LeaseMessage extends ClientMessage {
  readonly key: string
  readonly mode: LockMode
  readonly ttl: Milliseconds
  readonly fence: number
  /** How often it was renewed by itself, as far as that was listened to. */
  renewals: number
  /** How it ended; missing while it is held, as what follows. */
  outcome?: 'released' | 'detached' | 'lost'
  /** How long it was held, in ms. */
  held?: Milliseconds
  /** What its holder is told of its loss. */
  error?: LockLostError
  /** Why it was lost. */
  reason?: LossReason
}

/** A renewal that was asked for. */
export interface RenewMessage extends Ending<'renewed' | FailureOutcome> {
  readonly lease: LeaseMessage
  /** What was asked for, in ms. */
  readonly ttl: Milliseconds
}

/** A release. `gone`: there was nothing to give back any more. */
export interface ReleaseMessage extends Ending<'released' | 'gone' | FailureOutcome> {
  readonly lease: LeaseMessage
}

/** How a server of the store is now. */
export interface BreakerMessage extends ClientMessage {
  readonly health: StoreHealth
}

/** What a worker does now. */
export interface WorkerMessage {
  readonly worker: LockWorker
  readonly workerId: string
  readonly key: string
  readonly state: WorkerState
  readonly previous: WorkerState
}
