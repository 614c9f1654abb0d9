// Refusals: why a request is not served, and the answer to it.

import { STATUS_CODES } from 'node:http'
import type * as api from '../../../index'
import type { InvalidKeys, Refusal } from '../../../types/http'
import { isLockError, mayPass } from '../../diagnostics/errors'
import type { HoldTime } from './hold-time'

/**
 * How long a client stays away in an outage that may pass by itself, in s: a Redis server that
 * restarts is back by then. If this is larger, clients come back late; if it is smaller, more of
 * their requests fail.
 */
const OUTAGE = 5
/**
 * How long a client stays away if an operator has to act, in s: the store can't be used, or a lease
 * of another library never ends. If this is larger, clients come back late; if it is smaller, more
 * of their requests fail.
 */
const LASTING = 60

/**
 * Returns what a failed acquire means to a request; `undefined` for an abort, and for errors that
 * are not of this library.
 */
export async function refusalOf(
  locks: api.LockClient,
  keys: string | readonly string[],
  error: unknown,
  hold: HoldTime,
): Promise<Refusal | undefined> {
  if (!isLockError(error) || error.code === 'ERR_LOCK_ABORTED') return undefined
  const wanted = typeof keys === 'string' ? [keys] : [...keys]
  if (error.code === 'ERR_LOCK_TIMEOUT') {
    const retryAfter = await untilFree(locks, error as api.LockTimeoutError, hold)
    return { status: 423, retryAfter, keys: wanted, error }
  }
  // If the client was closed or a lease was lost, another process can serve the next try.
  const retryAfter = !isOutage(error) ? 1 : mayPass(error) ? OUTAGE : LASTING
  return { status: 503, retryAfter, keys: wanted, error }
}

/** Returns whether the store is the reason of a refusal. */
export function isOutage(error: api.LockError): boolean {
  return error.code === 'ERR_STORE_UNAVAILABLE' || error.code === 'ERR_LOCK_QUORUM'
}

/**
 * Estimates after how many whole seconds the lock of the error is free. The remaining time of the
 * lease does not show that: its holder renews the lease, and usually releases it sooner.
 */
async function untilFree(
  locks: api.LockClient,
  { key, holder, waiters }: api.LockTimeoutError,
  hold: HoldTime,
): Promise<number> {
  const isForeign = key !== undefined && waiters !== undefined && holder === undefined
  if (isForeign && (await neverEnds(locks, key))) return LASTING
  return hold.secondsBehind(waiters ?? 0)
}

/**
 * Returns whether another library holds the lock for ever. Call this only if the store has just
 * answered. Otherwise, each refused request would wait for a silent store.
 */
async function neverEnds(locks: api.LockClient, key: string): Promise<boolean> {
  try {
    const info = await locks.inspect(key)
    return info?.leases.some(({ remaining }) => remaining === null) ?? false
  } catch {
    return false
  }
}

const BUSY = 'This request has to wait for another request'
const UNAVAILABLE = "The server can't check now whether this request would be served alone"
const INVALID = 'A part of this request that says what it is about is missing, malformed, or repeated too often.'

/**
 * The callbacks that replace the default answer to a refusal. `A` are the arguments after the
 * refusal.
 */
interface Callbacks<A extends unknown[]> {
  readonly onBusy?: ((refusal: Refusal, ...args: A) => unknown) | undefined
  readonly onUnavailable?: ((refusal: Refusal, ...args: A) => unknown) | undefined
  readonly onInvalid?: ((invalid: InvalidKeys, ...args: A) => unknown) | undefined
}

/** Returns the callback for `refusal`, or undefined if there is none. */
export function ownAnswer<A extends unknown[]>(
  { onBusy, onUnavailable, onInvalid }: Callbacks<A>,
  refusal: Refusal | InvalidKeys,
): ((...args: A) => unknown) | undefined {
  if (refusal.status === 400) return onInvalid && ((...args) => onInvalid(refusal, ...args))
  const own = refusal.status === 423 ? onBusy : onUnavailable
  return own && ((...args) => own(refusal, ...args))
}

/** Returns the headers of a refusal. */
export function headersOf(refusal: Refusal | InvalidKeys): Record<string, string> {
  const headers = { 'cache-control': 'no-store' }
  return refusal.status === 400 ? headers : { 'retry-after': String(refusal.retryAfter), ...headers }
}

export const PROBLEM = 'application/problem+json'

/**
 * Returns a body for machines and people (RFC 9457). It names neither key nor store, because any
 * client may read it.
 */
export function problemOf(refusal: Refusal | InvalidKeys): string {
  const { status } = refusal
  const detail =
    refusal.status === 400
      ? INVALID
      : `${refusal.status === 423 ? BUSY : UNAVAILABLE}. Try again in ${refusal.retryAfter} s.`
  return JSON.stringify({ type: 'about:blank', title: STATUS_CODES[status], status, detail })
}
