// What leasehold/express and leasehold/remix have in common: a lock for each request, and what is answered when it can't be had.

import type { AcquireOptions } from './asking'
import type { LockError } from './errors'
import type { Lease, MultiLease } from './lease'
import type { Seconds } from './units'

/**
 * Says what a key function returns: one key, several keys (all or none; see
 * {@link RequestLockOptions.maxKeys}), or no key, if the request needs no lock (see
 * {@link RequestLockOptions.optional}).
 */
export type RequestKeys = string | readonly string[] | null | undefined

/** The lease of a request whose key function says `K`. */
export type LeaseOf<K> = K extends string ? Lease : K extends readonly string[] ? MultiLease : undefined

/**
 * How a request's lock is acquired: see {@link AcquireOptions}. `wait` is how long the request may be kept waiting, by default
 * as long as the client says, which is 10 s. A request that never ends is never released: `maxHold` puts an end to that.
 */
export interface RequestLockOptions extends Pick<AcquireOptions, 'ttl' | 'wait' | 'retry' | 'maxHold'> {
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
  /** 423 Locked: somebody else held it for all of `wait`. 503 Service Unavailable: the store is gone, or the client closed. */
  readonly status: 423 | 503
  /**
   * What `Retry-After` says: whole seconds, at least 1. With 423, what the holder has left if it does not renew; a holder
   * that lives mostly is done sooner.
   */
  readonly retryAfter: Seconds
  /** Which locks were wanted. Not for the eyes of whoever sent the request. */
  readonly keys: readonly string[]
  /** What `LockClient.acquire()` rejected with. Not for the eyes of whoever sent the request: it may name the store. */
  readonly error: LockError
}
