// What leasehold/express and leasehold/remix have in common: a lock for each request, and what is answered when it can't be had.

import type { AcquireOptions } from './asking'
import type { LockError } from './errors'
import type { Lease, MultiLease } from './lease'

/** What a key function says: which lock, which locks (all or none), or that this request needs none. */
export type RequestKeys = string | readonly string[] | null | undefined

/** The lease of a request whose key function says `K`. */
export type LeaseOf<K> = K extends string ? Lease : K extends readonly string[] ? MultiLease : undefined

/**
 * How a request's lock is acquired: see {@link AcquireOptions}. `wait` is how long the request may be kept waiting, by default
 * as long as the client says, which is 10 s. A request that never ends is never released: `maxHold` puts an end to that.
 */
export type RequestLockOptions = Pick<AcquireOptions, 'ttl' | 'wait' | 'retry' | 'maxHold'>

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
