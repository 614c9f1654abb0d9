// The errors of the public interface, and how native code numbers them. See index.d.ts for what they mean.

import { types } from 'node:util'

import type * as api from '../index'
import type { Contention } from './contention'
import { printableJson } from './printable'

export class LockError extends Error implements api.LockError {
  readonly code: string
  declare readonly key?: string

  constructor(code: string, message: string, options?: api.LockErrorOptions) {
    super(message, options)
    this.code = code
    if (options?.key !== undefined) this.key = options.key
  }
}

export class LockTimeoutError extends LockError implements api.LockTimeoutError {
  declare readonly code: 'ERR_LOCK_TIMEOUT'
  declare readonly holder?: string
  declare readonly heldFor?: number
  declare readonly waiters?: number

  constructor(message: string, options?: api.LockTimeoutErrorOptions) {
    super('ERR_LOCK_TIMEOUT', message, options)
    if (options === undefined) return
    const { holder, heldFor, waiters } = options
    if (holder !== undefined) this.holder = holder
    if (heldFor !== undefined) this.heldFor = heldFor
    if (waiters !== undefined) this.waiters = waiters
  }
}

export class LockLostError extends LockError implements api.LockLostError {
  declare readonly code: 'ERR_LOCK_LOST'
  readonly reason: api.LossReason

  constructor(reason: api.LossReason, message: string, options?: api.LockErrorOptions) {
    super('ERR_LOCK_LOST', message, options)
    this.reason = reason
  }
}

export class LockAbortedError extends LockError implements api.LockAbortedError {
  declare readonly code: 'ERR_LOCK_ABORTED'

  constructor(message: string, options?: api.LockErrorOptions) {
    super('ERR_LOCK_ABORTED', message, options)
  }
}

export class StoreUnavailableError extends LockError implements api.StoreUnavailableError {
  declare readonly code: 'ERR_STORE_UNAVAILABLE'
  readonly reason: api.StoreUnavailableReason

  constructor(reason: api.StoreUnavailableReason, message: string, options?: api.LockErrorOptions) {
    super('ERR_STORE_UNAVAILABLE', message, options)
    this.reason = reason
  }
}

export class QuorumError extends LockError implements api.QuorumError {
  declare readonly code: 'ERR_LOCK_QUORUM'
  readonly votes: readonly api.Vote[]

  constructor(votes: readonly api.Vote[], message: string, options?: api.LockErrorOptions) {
    super('ERR_LOCK_QUORUM', message, options)
    this.votes = votes
  }
}

export class LockClosedError extends LockError implements api.LockClosedError {
  declare readonly code: 'ERR_LOCK_CLOSED'

  constructor(message: string, options?: api.LockErrorOptions) {
    super('ERR_LOCK_CLOSED', message, options)
  }
}

// On the prototype, as with the errors of the language: an own property would be printed with every error.
for (const type of [
  LockError,
  LockTimeoutError,
  LockLostError,
  LockAbortedError,
  StoreUnavailableError,
  QuorumError,
  LockClosedError,
]) {
  Object.defineProperty(type.prototype, 'name', { value: type.name, configurable: true, writable: true })
}

// In the order of src/lease/state.rs.
const lossReasons: { reason: api.LossReason; because: string }[] = [
  { reason: 'expired', because: 'it was not renewed in time' },
  { reason: 'taken', because: 'somebody else holds the lock now' },
  { reason: 'missing', because: 'the store knows nothing of it any more' },
  { reason: 'stalled', because: 'this thread was blocked for longer than maxStall' },
  { reason: 'closed', because: 'the client was closed' },
]

// In the order of src/store/error.rs.
const storeReasons: api.StoreUnavailableReason[] = [
  'unreachable',
  'timeout',
  'loading',
  'readonly',
  'full',
  'denied',
  'unsupported',
  'wrongtype',
  'internal',
  'untrusted',
]
/** From here on they do not pass by themselves. */
const FIRST_LASTING = storeReasons.indexOf('denied')
/** Added to the number of an error that has the votes of a quorum. */
const WITH_VOTES = 32

/**
 * The loss that native code numbers `index` (its phase, less that of the first loss). `failure` is how the last renewal failed, as
 * native code says it; `null` if it did not. `maxHold` is 0 if it had no limit.
 */
export function lost(key: string, index: number, failure: string | null, maxHold: number): LockLostError {
  const { reason, because } = lossReasons[index] ?? (lossReasons[0] as (typeof lossReasons)[number])
  const limit = reason === 'expired' && maxHold > 0 ? `, or had reached its maxHold of ${maxHold} ms` : ''
  const message = `the lease of ${quote(key)} is lost: ${because}${limit}`
  if (failure === null || reason === 'closed') return new LockLostError(reason, message, { key })
  const { ago, error, text }: { ago: number; error: number; text: string } = JSON.parse(failure)
  const cause = unavailable(error, text, key)
  // Of any other the store's answer to a later one told.
  const which = reason === 'expired' || reason === 'stalled' ? 'the last' : 'an earlier'
  const why = `${which} renewal failed ${Math.round(ago)} ms before: ${cause.message}`
  return new LockLostError(reason, `${message}; ${why}`, { key, cause })
}

/**
 * Returns the error of `lost` without a stack, which would only show the inside of this library. Without
 * the stack, this takes a third of the time, and thousands of leases can be lost at once.
 */
export function lostWithoutStack(...loss: Parameters<typeof lost>): LockLostError {
  const limit = Error.stackTraceLimit
  try {
    Error.stackTraceLimit = 0
  } catch {
    // Node was started with --frozen-intrinsics.
    return lost(...loss)
  }
  try {
    return lost(...loss)
  } finally {
    Error.stackTraceLimit = limit
  }
}

export function released(key: string): LockError {
  return new LockError('ERR_LOCK_RELEASED', `the lease of ${quote(key)} was released`, { key })
}

export function detached(key: string): LockError {
  return new LockError('ERR_LOCK_RELEASED', `the lease of ${quote(key)} was detached`, { key })
}

/** Makes the error of a call for one or `count` keys that found `key` held at each of `tries`. */
export function gaveUp(key: string, tries: number, count: number, contention: Contention): LockTimeoutError {
  return contended(key, count, `in ${tries === 1 ? '1 try' : `${tries} tries`}`, contention)
}

/** Makes the error of a call for one or `count` keys whose `wait` ended while `key` was held. */
export function timedOut(key: string, wait: number, count: number, contention: Contention): LockTimeoutError {
  return contended(key, count, wait > 0 ? `within ${wait} ms` : 'at once', contention)
}

function contended(key: string, count: number, limit: string, contention: Contention): LockTimeoutError {
  const { words, holder, heldFor, waiters } = contention
  const [what, which] = count > 1 ? [`${count} keys`, `${quote(key)} is `] : [quote(key), '']
  const message = `could not acquire ${what} ${limit}: ${which}${words}`
  return new LockTimeoutError(message, { key, holder, heldFor, waiters })
}

export function aborted(key: string, cause: unknown): LockAbortedError {
  return new LockAbortedError(`waiting for ${quote(key)} was aborted`, { key, cause })
}

export function closed(key?: string): LockClosedError {
  return new LockClosedError('the client was closed', { key })
}

/**
 * Returns true if `error` is an error of this library. A client of another copy of the library (a
 * second installed version, or a bundled one) rejects with other classes, so this compares codes.
 */
export function isLockError(error: unknown): error is LockError {
  try {
    if (error instanceof LockError) return true
    return types.isNativeError(error) && CODE.test(String((error as { code?: unknown }).code))
  } catch {
    // A getter of the error throws, or the error is a proxy that throws.
    return false
  }
}

const CODE = /^ERR_(LOCK_|STORE_UNAVAILABLE$)/

/** Whether it is an error of a store that may be gone the next time. */
export function mayPass(error: unknown): boolean {
  if (!isLockError(error)) return false
  const { votes, reason } = error as { votes?: readonly api.Vote[]; reason?: string }
  if (votes !== undefined) {
    return votes.filter(({ vote }) => isLasting(vote)).length < Math.ceil(votes.length / 2)
  }
  return error.code === 'ERR_STORE_UNAVAILABLE' && reason !== undefined && !isLasting(reason)
}

function isLasting(vote: string): boolean {
  return storeReasons.indexOf(vote as api.StoreUnavailableReason) >= FIRST_LASTING
}

/** The store's error that native code numbers `index`. */
export function unavailable(index: number, message: string, key?: string): LockError {
  if (index >= WITH_VOTES) return withoutQuorum(message, key)
  return new StoreUnavailableError(storeReasons[index] ?? 'internal', message, { key })
}

/** The error of a quorum that native code says as JSON. */
function withoutQuorum(text: string, key?: string): QuorumError {
  const said: { message: string; votes: { store: string; vote: api.Vote['vote'] | number; message: string | null }[] } =
    JSON.parse(text)
  const votes = said.votes.map(({ store, vote, message }): api.Vote => {
    const word = typeof vote === 'number' ? (storeReasons[vote] ?? 'internal') : vote
    return message === null ? { store, vote: word } : { store, vote: word, message }
  })
  return new QuorumError(votes, said.message, { key })
}

/** A key as it stands in a message: on one line, and not a kilobyte of it. */
export function quote(key: string): string {
  return printableJson(key.length > 80 ? `${key.slice(0, 79)}…` : key)
}
