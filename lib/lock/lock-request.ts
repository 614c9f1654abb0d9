// A request for a lock, as the engine gets it, with the defaults filled in.

import { Most, NO_MAX_HOLD } from '../native/protocol'
import { now } from '../util/clock'
import type { RetryPolicy } from './retry-options'

/** The options of an acquire. Times are in ms. */
export interface LockRequest {
  readonly ttl: number
  /** How long to wait; `NO_WAIT` for a request that does not wait. */
  readonly wait: number
  /** How long the lease may be held in all; `NO_MAX_HOLD` for no limit. */
  readonly maxHold: number
  /** How many clients may hold the lock; see `Most` in native/protocol.ts. */
  readonly most: number
  /** Bits of `Flag` in native/protocol.ts. */
  readonly flags: number
  /**
   * The `traceparent` (W3C) of the current trace, if there is one. The store shows it to everyone
   * who inspects the lock.
   */
  readonly trace: string | undefined
  /** Set if the call tries again instead of waiting in the queue. `wait` then limits all tries. */
  readonly retry: RetryPolicy | undefined
  readonly signal: AbortSignal | undefined
  /**
   * Set if this is one key of a call for several keys: their count, and the `wait` for all of them.
   */
  readonly group: { readonly count: number; readonly wait: number } | undefined
  /**
   * When the call began, in ms of `now()`, if this is one of several requests of the call.
   * Otherwise the call begins with the request.
   */
  readonly began: number | undefined
}

/** Returns a request for one exclusive lease, without other options. */
export function lockRequest(ttl: number, wait: number): LockRequest {
  const nothing = { trace: undefined, retry: undefined, signal: undefined, group: undefined, began: undefined }
  return { ttl, wait, maxHold: NO_MAX_HOLD, most: Most.Exclusive, flags: 0, ...nothing }
}

/**
 * Returns {@link LockRequest.began} for a call with this signal that begins now; `undefined` if the
 * call has no signal, or one that is aborted already.
 */
export const beginOf = (signal: AbortSignal | undefined): number | undefined =>
  signal === undefined || signal.aborted ? undefined : now()
