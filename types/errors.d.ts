// What goes wrong.

import type { Milliseconds } from './units'

/**
 * Why a lease was lost. `expired`: not renewed in time, or `maxHold` old. `taken`: somebody else holds it now. `missing`:
 * the store knows nothing of it. `stalled`: this thread was blocked for longer than `maxStall`. `closed`: the client was.
 */
export type LossReason = 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'

/**
 * What is wrong with a store. These may pass by themselves: `unreachable` (no connection),
 * `timeout` (no answer in `storeTimeout`, or of too few replicas; or, over a quorum, several
 * clients kept each other from adopting a ticket), `loading` (the server is starting or busy, or
 * not all sentinels have answered yet), `readonly` (a replica), `full` (memory or disk). These do
 * not: `denied` (user, password, rights, client certificate), `unsupported` (nothing that can be
 * used, or TLS on one side only), `wrongtype` (the key is something else), `internal` (a bug),
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

/** What every error of this library is, bad arguments aside. Code `ERR_LOCK_RELEASED` if it is nothing more special. */
export class LockError extends Error {
  constructor(code: string, message: string, options?: LockErrorOptions)
  readonly code: string
  /** Which lock, if it is about one. */
  readonly key?: string
}

/** What the constructors of errors take. */
export interface LockErrorOptions extends ErrorOptions {
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

/** What the constructor of {@link LockTimeoutError} takes. */
export interface LockTimeoutErrorOptions extends LockErrorOptions {
  /** See {@link LockTimeoutError.holder}. Default: not set. */
  holder?: string | undefined
  /** See {@link LockTimeoutError.heldFor}. Default: not set. */
  heldFor?: Milliseconds | undefined
  /** See {@link LockTimeoutError.waiters}. Default: not set. */
  waiters?: number | undefined
}

/**
 * Code `ERR_LOCK_LOST`: the lease is not held any more, and its holder did not want that. If its last renewal had failed, `cause` is
 * how: a {@link StoreUnavailableError} or {@link QuorumError}, and the message has it, too.
 */
export class LockLostError extends LockError {
  constructor(reason: LossReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_LOST'
  readonly reason: LossReason
}

/** Code `ERR_LOCK_ABORTED`: the caller's signal was aborted; its reason is the `cause`. */
export class LockAbortedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_ABORTED'
}

/** Code `ERR_STORE_UNAVAILABLE`: the store could not be reached, or not be used. */
export class StoreUnavailableError extends LockError {
  constructor(reason: StoreUnavailableReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_STORE_UNAVAILABLE'
  readonly reason: StoreUnavailableReason
}

/**
 * Code `ERR_LOCK_QUORUM`: too few nodes of a quorum could be reached, or used, to grant or renew a lease. The message names those
 * that failed and why, and is the same for the same trouble; `votes` has what each of them said.
 */
export class QuorumError extends LockError {
  constructor(votes: readonly Vote[], message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_QUORUM'
  /** What each node said, in the order in which they were named: also those that were there, and had nothing against it. */
  readonly votes: readonly Vote[]
}

/** What one node of a quorum said. */
export interface Vote {
  /** Its URL, without the password. */
  readonly store: string
  /**
   * `granted`: yes. `busy`: somebody else has it there. `missing`: it knows nothing of the lease. `unheard`: the others had decided
   * before it answered, so it was not waited for; that says nothing against it. Else why it failed: one that was too slow is `timeout`.
   */
  readonly vote: 'granted' | 'busy' | 'missing' | 'unheard' | StoreUnavailableReason
  /** What went wrong there, for people. */
  readonly message?: string
}

/** Code `ERR_LOCK_CLOSED`: the client was closed. */
export class LockClosedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_CLOSED'
}
