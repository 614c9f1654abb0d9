// The lease or the leases that a caller holds.

import type { Milliseconds } from './units'

/**
 * One lease of a lock, from its grant to its end. Inspecting or serializing it never shows the
 * token.
 */
export interface Lease {
  /** Which lock. */
  readonly key: string
  /**
   * A secret that proves ownership at the store. It is empty if your code reads it for the first
   * time after the lease has ended. Leases that a process passes between its own waiters have the
   * same token.
   */
  readonly token: string
  /**
   * A number that grows with every lease of this key. Send it to the storage that the lock
   * protects, and let the storage refuse a smaller fence than it has seen. Then late writes do no
   * harm. A fence is about 2 · 10^15 and below 2^53: use a `BIGINT` column for it.
   *
   * Readers hold a lock at the same time. Over a quorum, their fences may not be in the order of
   * their grants. A writer's fence is larger than those of all earlier readers.
   */
  readonly fence: number
  /** How long the lease lives without renewal, in ms. */
  readonly ttl: Milliseconds
  /**
   * Whether the lease is held now. This is read from the clock, so it is right even just after the
   * event loop was blocked.
   */
  readonly isHeld: boolean
  /**
   * How much longer the lease is held without another renewal, in ms; 0 if it is not held. The time
   * counts from before the request was sent, minus a margin of 1 % and 2 ms for clocks with
   * different rates. So it is less than the time that the store shows.
   */
  readonly remaining: Milliseconds
  /**
   * Aborts with a {@link LockLostError} when the lease is lost. It does not abort when the lease is
   * released. If the event loop is blocked at that time, it aborts when the loop goes on: until
   * then, only {@link isHeld} is right.
   */
  readonly signal: AbortSignal
  /**
   * Throws if the lease is not held now.
   *
   * @throws {LockLostError} the lease was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: the lease was released or detached
   */
  assertHeld(): void
  /**
   * Renews the lease now. You need it only with `autoRenew: false`, or for another ttl. The lease
   * never ends earlier than before: a shorter ttl takes effect with the renewals after this one. If
   * the ttl reaches beyond `maxHold`, the lease ends at `maxHold`, here and at the store.
   * {@link remaining} then says how long the lease lives.
   *
   * If this call fails, the lease keeps its ttl. If the lease is then lost, the lock is free when
   * the lease would have ended without this call, or as soon as {@link release} is called or the
   * client is closed.
   *
   * @param ttl the ttl from now on, in ms: 10 to 2 147 483 647. Default: the ttl that the lease
   * has.
   * @throws {LockLostError} the lease was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: the lease was released or detached
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached; the lease still
   * lives until its deadline
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  renew(ttl?: Milliseconds): Promise<void>
  /**
   * Renews the lease for the last time and ends it here without releasing it, so that another
   * process can take it over with {@link LockClient.adopt}. The lock stays taken until a client has
   * adopted and released it, or until its time is over.
   *
   * **The ticket is a secret:** a process that has it can take the lease, and it contains the
   * token.
   *
   * If the process or the worker thread ends before your code has the ticket, the client releases
   * the lease. If the process is killed, or ends in the microtasks right before your code runs, the
   * lock stays taken until the time of the ticket is over.
   *
   * If the process that adopted the lease dies, the lock is free after the `ttl` of that process's
   * last renewal. Over a quorum, it is not free before the time of the ticket is over.
   *
   * If no answer to an acquire came, the client repeats the request. The first request may still
   * arrive after the ticket was adopted and that lease was released. It then holds the lock for the
   * `ttl` of the acquire, and nobody releases it. On one store, the ticket can't be adopted again.
   *
   * If the call rejects, there is no ticket, and `ttl` does not keep the lock taken. If the lease
   * is then lost, the lock is free when the lease would have ended without this call, or as soon as
   * {@link release} is called or the client is closed.
   *
   * @param ttl how long the ticket can be adopted at least, in ms: 10 to 2 147 483 647. As with
   * {@link renew}, the lease never ends earlier than before. Default: the lease's ttl.
   * @returns the ticket: a string of up to a few kilobytes of letters, digits, `-` and `_`
   * @throws {LockLostError} the lease was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: the lease was released, or detached before
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached; the lease is
   * still held here
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  detach(ttl?: Milliseconds): Promise<string>
  /**
   * Releases the lock. A second call returns the same promise. A rejection without a handler does
   * no harm.
   *
   * @returns `true` if the store still had this lease and released it, `false` if the lease had
   * ended there or was detached before. If a section outlives the client's drain, `isHeld` is
   * false, but the store keeps the lease until its ttl ends. `release()` resolves with `true` until
   * then. Over a quorum, servers that had the lease may fail. If the lease was valid here at the
   * call, `release()` then still resolves with `true`, unless half of the servers or more lack the
   * lease, or a server that had the lease names another holder.
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached, or refused. The
   * lease is no longer held here, and the engine repeats the release. After a refusal (missing
   * rights, a changed password, no memory left, a replica), it repeats the release until the lease
   * would have ended by its ttl. Otherwise it repeats the release until the store answers, also
   * after the client has closed. This does not keep the process alive. Over a quorum, the engine
   * repeats the release at each server that has not answered, for up to 10 minutes. It keeps up to
   * 65 536 such releases for each server. If there are more, it drops those whose leases end first.
   * After a failover of Sentinel, it repeats the last releases at the new master.
   */
  release(): Promise<boolean>
  /**
   * Calls {@link release}, for `await using`. Never rejects: a failure is the client's `'error'`
   * event.
   */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Leases of several locks, held as one. If one of them is lost, the client releases the others.
 * Under a section (`withLock`, a request lock), it does so only when the section ends. Inspecting
 * or serializing a `MultiLease` never shows a token.
 */
export interface MultiLease {
  /** Which locks: sorted, each once. */
  readonly keys: readonly string[]
  /** The {@link Lease.fence} of each key: each guards what its own lock protects. */
  readonly fences: Readonly<Record<string, number>>
  /** The leases, in the order of `keys`. */
  readonly leases: readonly Lease[]
  /** Whether all leases are held now. This is read from the clock, as {@link Lease.isHeld} is. */
  readonly isHeld: boolean
  /** How much longer all leases are held without another renewal, in ms; 0 if one is not held. */
  readonly remaining: Milliseconds
  /**
   * Aborts with a {@link LockLostError} as soon as one of the leases is lost. It does not abort
   * when they are released.
   */
  readonly signal: AbortSignal
  /**
   * Throws if one of the leases is not held now.
   *
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
   * Releases all leases. A second call returns the same promise. A rejection without a handler
   * does no harm.
   *
   * @returns `true` if {@link Lease.release} resolves with `true` for each of them
   * @throws {StoreUnavailableError | QuorumError} as with {@link Lease.release}, for at least one
   * of them
   */
  release(): Promise<boolean>
  /**
   * Calls {@link release}, for `await using`. Never rejects: a failure is the client's `'error'`
   * event.
   */
  [Symbol.asyncDispose](): Promise<void>
}
