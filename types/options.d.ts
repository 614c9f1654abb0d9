// The kinds of locks, and the options of calls.

import type { Lease, MultiLease } from './lease'
import type { Milliseconds } from './units'

/** One lock, and the ways to acquire it. */
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

/** A lock that several holders may have at a time. */
export interface Semaphore extends Lock {
  /** How many holders may have it at a time. */
  readonly permits: number
}

/** A lock that many readers or one writer may hold. */
export interface ReadWriteLock {
  /** Which lock. */
  readonly key: string
  /** The lock for readers: held together with other readers. */
  readonly read: Lock
  /** The lock for a writer: held alone. The same lock as that of {@link LockClient.acquire}. */
  readonly write: Lock
}

/** One key, or an array of 1 to 100 000 keys. */
export type Keys = string | readonly string[]

// acquire() and tryAcquire() have one signature with this, and not an overload for each. So the
// compiler says which option is wrong, and not that the key is no array. A key of the type `any`,
// as in a request's body, counts as one key.
/**
 * What a call for such keys holds: a {@link Lease} for one key, a {@link MultiLease} for several.
 */
export type HeldOf<K> = 0 extends 1 & K ? Lease : K extends string ? Lease : MultiLease

/** The options of {@link LockClient.acquire}. */
export interface AcquireOptions {
  /**
   * How long the lease lives without renewal, in ms: 10 to 2 147 483 647. Default: the client's, or
   * `maxHold` if that is shorter. Choose at least 1000: one slow round trip, or a short pause of
   * the process or its machine, can end a lease with a ttl below 100 ms.
   */
  ttl?: Milliseconds | undefined
  /**
   * How long to wait, in ms: 0 to 2 147 483 647, or `Infinity`. Default: the client's; with
   * `retry`, `Infinity`.
   */
  wait?: Milliseconds | undefined
  /**
   * Tries again after growing pauses, instead of waiting in the queue. Waiters in the queue come
   * first, so use it for locks that are rarely held for long, or for work that may be skipped. The
   * call ends when `retries` are used up or `wait` is over, whichever is first, after a last try. A
   * fault of the store that may pass counts as a failed try; if it was the last one, the call
   * rejects with it. `true` means all defaults.
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
  /**
   * Ends the wait: the call rejects with {@link LockAbortedError}, and the client releases a grant
   * that is on its way.
   */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /**
   * How long the lease may be held in total, in ms: `ttl` to 2 147 483 647. It is then lost as
   * `expired`. Default: no limit.
   */
  maxHold?: Milliseconds | undefined
}

/** The options of {@link LockClient.tryAcquire}. */
export type TryAcquireOptions = Omit<AcquireOptions, 'wait' | 'retry' | 'failFast'>

/** How {@link AcquireOptions.retry} tries again. */
export interface RetryOptions {
  /**
   * How often the call tries again after the first try: 0 to 2 147 483 647, or `Infinity`.
   * Default 10.
   */
  retries?: number | undefined
  /** The first pause, in ms: 1 to 2 147 483 647. Default 50. */
  minDelay?: Milliseconds | undefined
  /**
   * The longest pause apart from `jitter`, in ms: `minDelay` to 2 147 483 647. Default 1000, or
   * `minDelay` if that is more.
   */
  maxDelay?: Milliseconds | undefined
  /**
   * How many times longer each pause is than the one before it: 1 to 100, fractions allowed.
   * Default 2.
   */
  factor?: number | undefined
  /**
   * The part of a pause by which it gets longer or shorter at random, so that calls that collided
   * once do not collide again: 0 to 1. `true` is 0.5, which is ± 50 %; `false` is 0. Default
   * `true`.
   */
  jitter?: boolean | number | undefined
}

/** The options of {@link LockClient.adopt}. */
export interface AdoptOptions {
  /**
   * How long the lease lives without renewal from now on, in ms: 10 to 2 147 483 647. Default: the
   * ttl that it had, or `maxHold` if that is shorter. A changed ticket can make the default
   * shorter, but never longer. If the process is killed, the lock is free after this time, or at
   * the end that `detach()` gave the ticket if that is later.
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
   * How long the lease may be held from now on, in ms: `ttl` to 2 147 483 647. It is then lost as
   * `expired`. Default: no limit, whatever limit it had before.
   */
  maxHold?: Milliseconds | undefined
}

/**
 * A function that works under a lock, in the style of callbacks. The client calls it once, with an
 * error or with the lease. The errors are those with which the promise would reject. If the
 * function throws, the client releases the lease, and the error is an uncaught exception.
 *
 * In TypeScript, declare the function as a `LockCallback`, or its parameters with their types: the
 * compiler does not tell it from a function of a lease by the number of its parameters.
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
 * @param error the error of the work, if it failed
 * @param callback called when the lease was released, with `null`; or with `error`; or with the
 * error of the release, which may be a {@link LockLostError}: the work may not have been alone.
 * Without a callback, the client emits the error as `'error'`.
 */
export interface Done {
  (error?: Error | null, callback?: (error: Error | null) => void): void
  (callback: (error: Error | null) => void): void
}
