// What is asked for, and how: locks of all kinds, and the options of an acquire.

import type { Lease, MultiLease } from './lease'
import type { Milliseconds } from './units'

/** One lock, and the ways to it. */
export interface Lock {
  /** Which lock. */
  readonly key: string
  /** See {@link LockClient.acquire}. */
  acquire(options?: AcquireOptions): Promise<Lease>
  /** See {@link LockClient.tryAcquire}. */
  tryAcquire(options?: TryAcquireOptions): Promise<Lease | null>
  /** See {@link LockClient.withLock}. */
  withLock<T>(fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(options: AcquireOptions | undefined, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock(fn: LockCallback): void
  withLock(options: AcquireOptions | undefined, fn: LockCallback): void
}

/** A lock that several may hold at a time. */
export interface Semaphore extends Lock {
  /** How many. */
  readonly permits: number
}

/** A lock that many may hold to read, or one alone to write. */
export interface ReadWriteLock {
  /** Which lock. */
  readonly key: string
  /** Held together with all others who read. */
  readonly read: Lock
  /** Held alone: the same lock as that of {@link LockClient.acquire}. */
  readonly write: Lock
}

/** One key, or an array of 1 to 100 000 keys. */
export type Keys = string | readonly string[]

// acquire() and tryAcquire() have one signature with this, and not an overload for each. So the
// compiler says which option is wrong, and not that the key is no array. A key of the type `any`,
// as in a request's body, counts as one key.
/** What is held of such: one key has a {@link Lease}, several have a {@link MultiLease} together. */
export type HeldOf<K> = 0 extends 1 & K ? Lease : K extends string ? Lease : MultiLease

/** What {@link LockClient.acquire} takes beside the key. */
export interface AcquireOptions {
  /** How long the lease lives without renewal. Default: the client's, or `maxHold` if that is shorter. */
  ttl?: Milliseconds | undefined
  /** How long to wait: 0 to 2 147 483 647, or `Infinity`. Default: the client's; with `retry`, `Infinity`. */
  wait?: Milliseconds | undefined
  /**
   * Instead of waiting in the queue: tries, and tries again after growing pauses. Whoever waits in the queue comes
   * first, so this is for locks that are seldom held for long, or work that may as well not be done. It ends when
   * `retries` are used up or `wait` is over, whichever is first, after a last try. A fault of the store that may pass
   * counts as a try in vain, and is what the call rejects with if it came of the last one. `true`: all the defaults.
   */
  retry?: true | RetryOptions | undefined
  /**
   * Whether the call rejects, rather than waits, while the store can't grant leases. Default: the
   * client's, which is `false`.
   *
   * While the circuit breaker before the server is `open`, the call rejects at once, with the
   * {@link StoreUnavailableError} or {@link QuorumError} that it would have got after `wait`. If
   * the breaker opens while the call waits, the call rejects at that moment. While the breaker is
   * `refusing`, the call asks the server, and rejects if the server refuses. While the breaker is
   * `closed`, the call tries again after a single failure, as without this option. A quorum can't
   * grant leases while no majority of its breakers is `closed`. {@link StoreHealth.state} describes
   * the states.
   *
   * If no client has asked an absent server for 10 s, the next call first waits for the answer to a
   * probe, for `storeTimeout` at most. So the call is served if the server is back.
   *
   * A lease that the store may have granted is released, as after every call that rejects. Only
   * Redis servers have breakers: the option has no effect on `memory:`, `sqlite:` and
   * `redis-cluster:` stores.
   */
  failFast?: boolean | undefined
  /** Ends the waiting: the call rejects with {@link LockAbortedError}, and a grant on its way is given back. */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /** How long the lease may be held in all, `ttl` to 2 147 483 647. It is then lost as `expired`. Default: no limit. */
  maxHold?: Milliseconds | undefined
}

/** What {@link LockClient.tryAcquire} takes beside the key. */
export type TryAcquireOptions = Omit<AcquireOptions, 'wait' | 'retry' | 'failFast'>

/** How {@link AcquireOptions.retry} tries again. */
export interface RetryOptions {
  /** How often it tries again after the first time: 0 to 2 147 483 647, or `Infinity`. Default 10. */
  retries?: number | undefined
  /** The first pause: 1 to 2 147 483 647. Default 50. */
  minDelay?: Milliseconds | undefined
  /** No pause gets longer than this, `jitter` aside: `minDelay` to 2 147 483 647. Default 1000, or `minDelay` if that is more. */
  maxDelay?: Milliseconds | undefined
  /** How many times longer each pause is than the one before it: 1 to 100, fractions allowed. Default 2. */
  factor?: number | undefined
  /**
   * By what part of itself a pause is longer or shorter at random, so that those who met once do not meet again: 0 to 1.
   * `true` is 0.5, that is ± 50 %; `false` is 0. Default `true`.
   */
  jitter?: boolean | number | undefined
}

/** What {@link LockClient.adopt} takes beside the ticket. */
export interface AdoptOptions {
  /**
   * How long the lease lives without renewal from now on. Default: the ttl that it had, or
   * `maxHold` if that is shorter. A changed ticket can make the default shorter, but never longer.
   * If the process is killed, the lock is free after this time, or at the end that `detach()` gave
   * the ticket if that is later.
   */
  ttl?: Milliseconds | undefined
  /**
   * Ends the call: it rejects with {@link LockAbortedError}, and a lease that was adopted already
   * is released. Over a quorum, an adoption that has not ended yet gives the lease back to the
   * ticket instead.
   */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /**
   * How long the lease may be held from now on, `ttl` to 2 147 483 647. It is then lost as `expired`. Default: no limit,
   * whatever limit it had before.
   */
  maxHold?: Milliseconds | undefined
}

/**
 * Work under a lock in the style of callbacks: called once, with an error or with the lease. The errors are those
 * with which the promise would reject. What it throws is an uncaught exception, after the lease was released.
 *
 * In TypeScript the function has to be declared as one, or its parameters with their types: the compiler does not tell it
 * from a function of a lease by the number of its parameters.
 *
 * @example
 * const work: LockCallback = (error, lease, done) => {
 *   if (!lease) return done(error)
 *   save(invoice, lease.fence, done)
 * }
 * locks.withLock('invoice:42', work)
 */
export type LockCallback<L = Lease> = (error: Error | null, lease: L | undefined, done: Done) => void

/**
 * Ends the work under a lock: releases the lease. Only the first call counts.
 *
 * @param error what went wrong with the work, if something did
 * @param callback called when the lease was released, with `null`; or with `error`; or with what went wrong with the
 * release, which may be a {@link LockLostError}: the work may not have been alone. Without it an error is the client's
 * `'error'` event.
 */
export interface Done {
  (error?: Error | null, callback?: (error: Error | null) => void): void
  (callback: (error: Error | null) => void): void
}
