// The types that leasehold/express and leasehold/remix share: options, and refusals.

import type { LockError } from './errors'
import type { Lease, MultiLease } from './lease'
import type { AcquireOptions } from './options'
import type { Seconds } from './units'

/**
 * Says what a key function returns: one key, several keys (all or none; see
 * {@link RequestLockOptions.maxKeys}), or no key, if the request needs no lock (see
 * {@link RequestLockOptions.optional}).
 */
export type RequestKeys = string | readonly string[] | null | undefined

/** The lease of a request whose key function returns `K`. */
export type LeaseOf<K> = K extends string ? Lease : K extends readonly string[] ? MultiLease : undefined

/**
 * How to acquire a request's lock: see {@link AcquireOptions}. `wait` is how long a request may
 * wait; default: the client's, which is 10 s. A request that never ends never releases its lock:
 * set `maxHold` to limit that.
 */
export interface RequestLockOptions extends Pick<AcquireOptions, 'ttl' | 'wait' | 'retry' | 'maxHold'> {
  /**
   * Whether a request is answered 503 at once, rather than kept waiting, while the store can't
   * grant leases: see {@link AcquireOptions.failFast}. Default `true`, whatever the client's
   * default is. Otherwise, all requests of an outage would wait for `wait`, and keep their
   * connections for as long.
   */
  failFast?: boolean | undefined
  /**
   * Says whether requests without a key are allowed. If true, a request whose key function returns
   * `undefined` or `null` is served without a lock. If false, the answer is 400: a visitor who
   * leaves out a parameter must not get past the lock. Default false.
   */
  optional?: boolean | undefined
  /**
   * Limits how many keys a request may lock, from 1 to 1000. If it is 1, the key function must
   * return a string. If the function returns an array, the answer is 400: a visitor who repeats a
   * parameter must not lock two things. If it is larger, the function may also return an array.
   * Default 1.
   */
  maxKeys?: number | undefined
}

/** Says why the answer is 400: a key is missing or has the wrong form, or there are too many. */
export interface InvalidKeys {
  readonly status: 400
  /** Says what is wrong with the keys. Do not show it to the sender of the request. */
  readonly error: TypeError | RangeError
}

/** Why a request is not served. */
export interface Refusal {
  /**
   * 423 Locked: another client held the lock for all of `wait`. 503 Service Unavailable: the store
   * is gone, the client was closed, or a lease was lost before the handler began.
   */
  readonly status: 423 | 503
  /**
   * The value of `Retry-After`, in whole seconds. With 423, it estimates when the lock is free: how
   * long requests of this middleware have held their locks lately, times the number of waiters plus
   * one. It is 1 to 60, 1 if no request has held a lock yet, and 60 if another library holds the
   * lock for ever. With 503, it is 5 if the store is gone and may come back by itself, 60 if an
   * operator has to act, and 1 in the other cases.
   */
  readonly retryAfter: Seconds
  /** The locks that the request needs. Do not show them to the sender of the request. */
  readonly keys: readonly string[]
  /**
   * The error of `LockClient.acquire()`. Do not show it to the sender of the request: it may name
   * the store, or the lock's holder.
   */
  readonly error: LockError
}
