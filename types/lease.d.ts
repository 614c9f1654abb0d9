// What is held.

import type { Milliseconds } from './units'

/**
 * One tenure of a lock. Inspecting or serializing it never shows the token.
 */
export interface Lease {
  /** Which lock. */
  readonly key: string
  /**
   * The value that proves ownership at the store; a secret. Empty when it is first asked for after the lease
   * has ended. Leases that are handed on within a process have the same one after each other.
   */
  readonly token: string
  /**
   * Grows with every lease of this key. Hand it to the storage that the lock protects and let that refuse a
   * smaller one than it has seen, so that a write that comes late does no harm. About 2 · 10^15 and below 2^53: a
   * column for it is a `BIGINT`.
   */
  readonly fence: number
  /** How long it lives without renewal. */
  readonly ttl: Milliseconds
  /**
   * Whether the lease is held now. This is read from the clock, so it is right even just after the
   * event loop was blocked.
   */
  readonly isHeld: boolean
  /**
   * How much longer it is held without another renewal; 0 when it is not held. Counted from before the request was
   * sent, and less a margin of 1 % and 2 ms for clocks that run differently: so it is less than the store tells.
   */
  readonly remaining: Milliseconds
  /** Aborts with a {@link LockLostError} when the lease is lost; not when it is released. */
  readonly signal: AbortSignal
  /**
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released or detached
   */
  assertHeld(): void
  /**
   * Renews it now. Only needed with `autoRenew: false`, or for another ttl. Never makes it end earlier than it
   * would have: a shorter ttl takes effect with the renewals after this one.
   *
   * @param ttl its ttl from now on, 10 to 2 147 483 647. Default: the one it has.
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released or detached
   * @throws {StoreUnavailableError} the store could not be reached; the lease still lives until its deadline
   */
  renew(ttl?: Milliseconds): Promise<void>
  /**
   * Renews it for the last time and ends it here without giving it back, so that somebody else can go on with it:
   * {@link LockClient.adopt}, in whatever process. The lock stays taken until it is adopted and released, or its time is over.
   *
   * **The ticket is a secret:** whoever has it can take the lease, and reads its token in it.
   *
   * If the process that adopted the lease dies, the lock is free after the `ttl` of that process's
   * last renewal. Over a quorum, it is not free before the time of the ticket is over.
   *
   * @param ttl how long there is for adopting it, at least, 10 to 2 147 483 647: as with {@link renew}, it never ends earlier
   * than it would have. Default: its own ttl.
   * @returns the ticket: a string of up to a few kilobytes of letters, digits, `-` and `_`
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released, or detached before
   * @throws {StoreUnavailableError} the store could not be reached; the lease is still held here
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  detach(ttl?: Milliseconds): Promise<string>
  /**
   * Releases the lock. A second call returns the same promise. A rejection that nobody handles does
   * no harm.
   *
   * @returns `true` if the store still had this lease and released it, `false` if the lease had
   * ended there or was detached before. If a section outlives the client's drain, `isHeld` is
   * false, but the store keeps the lease until its ttl ends. `release()` resolves with `true` until
   * then.
   * @throws {StoreUnavailableError} the store could not be reached, or refused. The lease is no
   * longer held here, and the engine repeats the release. After a refusal (missing rights, a
   * changed password, no memory left, a replica), it repeats the release until the lease would have
   * ended by its ttl. Otherwise it repeats the release until the store answers, also after the
   * client has closed. This does not keep the process alive. Over a quorum, the engine repeats the
   * release at each server that has not answered, for up to 10 minutes. After a failover of
   * Sentinel, it repeats the last releases at the new master.
   */
  release(): Promise<boolean>
  /**
   * {@link release}, for `await using`. Never rejects: a failure is the client's `'error'` event.
   */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Leases of several locks, held as one. If one of them is lost, the others are released, but under
 * a section (`withLock`, a request lock) only when the section ends. Inspecting or serializing a
 * `MultiLease` never shows a token.
 */
export interface MultiLease {
  /** Which locks: sorted, each once. */
  readonly keys: readonly string[]
  /** The {@link Lease.fence} of each key: each guards what its own lock protects. */
  readonly fences: Readonly<Record<string, number>>
  /** The leases, in the order of `keys`. */
  readonly leases: readonly Lease[]
  /** Whether all of them are held now; true to the clock, as {@link Lease.isHeld}. */
  readonly isHeld: boolean
  /** How much longer all of them are held without another renewal; 0 when they are not. */
  readonly remaining: Milliseconds
  /**
   * Aborts with a {@link LockLostError} as soon as one of the leases is lost; not when they are
   * released.
   */
  readonly signal: AbortSignal
  /**
   * @throws {LockLostError} one of them was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: one of them was released or detached
   */
  assertHeld(): void
  /**
   * Renews all leases now. Rejects as {@link Lease.renew} does. If one of them can't be renewed,
   * the others are still renewed.
   */
  renew(ttl?: Milliseconds): Promise<void>
  /**
   * Releases all leases. A second call returns the same promise. A rejection that nobody handles
   * does no harm.
   *
   * @returns `true` if {@link Lease.release} resolves with `true` for each of them
   * @throws {StoreUnavailableError} as with {@link Lease.release}, for at least one of them
   */
  release(): Promise<boolean>
  /**
   * {@link release}, for `await using`. Never rejects: a failure is the client's `'error'` event.
   */
  [Symbol.asyncDispose](): Promise<void>
}
