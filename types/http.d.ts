// What leasehold/express and leasehold/remix have in common: a lock for each request, and what is answered when it can't be had.

import type { AcquireOptions } from './asking'
import type { LockError } from './errors'
import type { Lease, MultiLease } from './lease'

/**
 * What a key function says: which lock, which locks (all or none; see
 * {@link RequestLockOptions.maxKeys}), or that this request needs none (see
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
   * Whether a request may need no lock. If true, a request whose key function says `undefined` or
   * `null` is served without a lock. If false, it is answered 400: a visitor who leaves a parameter
   * out must not get past the lock. Default false.
   */
  optional?: boolean | undefined
  /**
   * How many keys a request may lock, from 1 to 1000. If it is 1, the key function must say a
   * string, and an array is answered 400: a visitor who repeats a parameter must not lock two
   * things. If it is larger, the key function may also say an array. Default 1.
   */
  maxKeys?: number | undefined
}

/** Why a request is answered 400: its key is missing, of another type, malformed, or one of too many. */
export interface InvalidKeys {
  readonly status: 400
  /** What is wrong with the keys. Not for the eyes of whoever sent the request. */
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
  readonly retryAfter: number
  /** Which locks were wanted. Not for the eyes of whoever sent the request. */
  readonly keys: readonly string[]
  /** What `LockClient.acquire()` rejected with. Not for the eyes of whoever sent the request: it may name the store. */
  readonly error: LockError
}
