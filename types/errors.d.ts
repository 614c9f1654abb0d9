// The errors, and the reasons that they give.

import type { Milliseconds } from './units'

/**
 * Why a lease was lost. `expired`: not renewed in time, or `maxHold` old. `taken`: another client
 * holds the lock now. `missing`: the store does not know the lease. `stalled`: this thread was
 * blocked for longer than `maxStall`. `closed`: the client was closed.
 */
export type LossReason = 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'

/**
 * What is wrong with a store. These may pass by themselves: `unreachable` (no connection),
 * `timeout` (no answer in `storeTimeout`, or answers of too few replicas; or, over a quorum,
 * several clients kept each other from adopting a ticket), `loading` (the server is starting or
 * busy, or not all sentinels have answered yet), `readonly` (a replica), `full` (memory or disk).
 * These do not: `denied` (user, password, rights, client certificate), `unsupported` (no usable
 * server, or TLS on one side only), `wrongtype` (the key has another type), `internal` (a bug),
 * `untrusted` (the server's certificate: of an unknown issuer, expired, for another name).
 */
export type StoreUnavailableReason =
  | 'unreachable'
  | 'timeout'
  | 'loading'
  | 'readonly'
  | 'full'
  | 'denied'
  | 'unsupported'
  | 'wrongtype'
  | 'internal'
  | 'untrusted'

/**
 * The class of all errors of this library, except those of bad arguments. If an error has no class
 * of its own, its code is `ERR_LOCK_RELEASED`.
 */
export class LockError extends Error {
  constructor(code: string, message: string, options?: LockErrorOptions)
  readonly code: string
  /** Which lock, if the error is about one. */
  readonly key?: string
}

/** The options of the constructors of errors. */
export interface LockErrorOptions extends ErrorOptions {
  /** See {@link LockError.key}. Default: not set. */
  key?: string | undefined
}

/**
 * Code `ERR_LOCK_TIMEOUT`: the lock was held for all of `wait`, or at each try; or work did not end
 * in `stopTimeout`.
 *
 * If the call has waited, the client asks the store who holds the lock. The answer is in the
 * message and in the properties `holder`, `heldFor` and `waiters`. The properties are missing if
 * the store did not answer within 250 ms, or could not be asked because its circuit breaker is
 * open. They are also missing if the call did not wait (`wait: 0`, or a single try with `retry`),
 * except for a `holder` that the client knows to be itself.
 */
export class LockTimeoutError extends LockError {
  constructor(message: string, options?: LockTimeoutErrorOptions)
  readonly code: 'ERR_LOCK_TIMEOUT'
  /**
   * The holder of the lock: the {@link LockClientOptions.name} of its client. If there are several
   * holders, this is the one with the oldest lease. If the holder is the client of this call, the
   * message says "this client". The property is missing if another library holds the lock.
   */
  readonly holder?: string
  /**
   * How long `holder` has had the lock, in ms: since the store granted it. Since then, the client
   * may have passed the lock between its own waiters. An adopted lease counts from its first grant.
   * The figure is the difference between the clocks of this host and of the store, so it is as
   * wrong as these clocks are: see {@link LockClient.diagnose}. The property is missing for a
   * quorum, and if the store's clock is ahead.
   */
  readonly heldFor?: Milliseconds
  /**
   * How many calls wait for the lock. The calls of another process may count as one, as in
   * {@link LockInfo.waiters}.
   */
  readonly waiters?: number
}

/** The options of the constructor of {@link LockTimeoutError}. */
export interface LockTimeoutErrorOptions extends LockErrorOptions {
  /** See {@link LockTimeoutError.holder}. Default: not set. */
  holder?: string | undefined
  /** See {@link LockTimeoutError.heldFor}. Default: not set. */
  heldFor?: Milliseconds | undefined
  /** See {@link LockTimeoutError.waiters}. Default: not set. */
  waiters?: number | undefined
}

/**
 * Code `ERR_LOCK_LOST`: the lease ended although its holder had not released it. If its last
 * renewal failed, `cause` is the error, a {@link StoreUnavailableError} or {@link QuorumError}, and
 * the message contains it, too. If the reason is `expired` or `stalled`, and this thread noticed
 * the loss at least 100 ms after the end of the lease, the message says how many ms. If a held
 * lease was lost, the message names the store, and says that `inspect()` shows the holder, unless
 * the reason is `closed`.
 */
export class LockLostError extends LockError {
  constructor(reason: LossReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_LOST'
  /** Why the lease was lost. */
  readonly reason: LossReason
}

/**
 * Code `ERR_LOCK_ABORTED`: the caller's signal was aborted; its reason is the `cause`. The message
 * says how long the call had waited. The client does not ask the store who holds the lock, because
 * an abort ends the call at once: {@link LockClient.inspect} shows the holder.
 */
export class LockAbortedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_ABORTED'
}

/** Code `ERR_STORE_UNAVAILABLE`: the store could not be reached, or not be used. */
export class StoreUnavailableError extends LockError {
  constructor(reason: StoreUnavailableReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_STORE_UNAVAILABLE'
  /** What is wrong with the store. */
  readonly reason: StoreUnavailableReason
}

/**
 * Code `ERR_LOCK_QUORUM`: too few nodes of a quorum could be reached or used to grant or renew a
 * lease, or for another call. The message names the nodes that failed, and why. The message is the
 * same for the same failures. `votes` has the answer of each node.
 */
export class QuorumError extends LockError {
  constructor(votes: readonly Vote[], message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_QUORUM'
  /** The answer of each node, in the order of the URLs, including the nodes that did not fail. */
  readonly votes: readonly Vote[]
}

/** The answer of one node of a quorum. */
export interface Vote {
  /** Its URL, without the password. */
  readonly store: string
  /**
   * `granted`: yes. `busy`: another client has the lock there. `missing`: the node does not know
   * the lease. `unheard`: the others had decided before the node answered, so the call did not wait
   * for it. Otherwise the reason why it failed: a node that was too slow is `timeout`.
   */
  readonly vote: 'granted' | 'busy' | 'missing' | 'unheard' | StoreUnavailableReason
  /** A description of the failure, for people. */
  readonly message?: string
}

/** Code `ERR_LOCK_CLOSED`: the client was closed. */
export class LockClosedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_CLOSED'
}
