// The errors of the public interface, and the numbers that native code gives them. See
// types/errors.d.ts for their meaning.

import { types } from 'node:util'

import type * as api from '../../index'
import { ErrorKind, FIRST_LOSS, WITH_VOTES } from '../native/protocol'
import { now } from '../util/clock'
import { copyWords } from '../util/copies'
import { quote } from '../util/printable'
import { type Contention, UNKNOWN } from './contention'
import { type LossFacts, type LostLease, lookWords, lossWords, placeOf } from './loss-words'

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

// Set the name on the prototype, as the language does: an own property would be printed with every
// error.
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

/** The reasons for losses, in the order of the phases from `FIRST_LOSS` on. */
const lossReasons: api.LossReason[] = ['expired', 'taken', 'missing', 'stalled', 'closed']

/** In the order of `ErrorKind`. */
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

/** Returns the error of a lease that is lost. The cause is the last renewal, if that failed. */
export function lostError(lease: LostLease): LockLostError {
  const { key, phase, store } = lease
  const facts: LossFacts = lease.facts === null ? { late: 0, failure: null } : JSON.parse(lease.facts)
  const reason = lossReasons[phase - FIRST_LOSS] ?? 'expired'
  const message = `the lease of ${quote(key)} is lost: ${lossWords(reason, lease, facts)}`
  const look = lookWords(reason, store)
  if (facts.failure === null || reason === 'closed') return new LockLostError(reason, message + look, { key })
  const { ago, error, text } = facts.failure
  const cause = unavailableError(error, text, key)
  // For other reasons, the store reported the loss in its answer to a later renewal.
  const which = reason === 'expired' || reason === 'stalled' ? 'the last' : 'an earlier'
  const why = `${which} renewal failed ${Math.round(ago)} ms before: ${cause.message}`
  return new LockLostError(reason, `${message}; ${why}${look}`, { key, cause })
}

/**
 * Returns the error of a ticket that the client could not adopt, because the lease is `taken` or
 * `missing`. `isHeldHere` says whether this client has adopted the same ticket and holds the lease.
 */
export function notAdoptedError(
  key: string,
  reason: 'taken' | 'missing',
  store: api.StoreIdentity,
  isHeldHere: boolean,
): LockLostError {
  const words = {
    taken:
      'another client holds the lock now. A ticket can be adopted once, and before its time is over: if the work is not done, ' +
      `acquire the lock${lookWords('taken', store)}`,
    missing:
      `${placeOf(store)} has no lease for the ticket. The lease was released, or its time is over, or the ticket is of ` +
      'another store or prefix: if the work is not done, acquire the lock',
  }
  const because = isHeldHere ? 'this client adopted the ticket already, and holds the lease' : words[reason]
  return new LockLostError(reason, `could not adopt the lease of ${quote(key)}: ${because}`, { key })
}

/**
 * Returns what {@link lostError} returns, but without a stack, which would only show the inside of
 * this library. This takes a third of the time, and thousands of leases can be lost at once.
 */
export function lostErrorWithoutStack(lease: LostLease): LockLostError {
  const limit = Error.stackTraceLimit
  try {
    Error.stackTraceLimit = 0
  } catch {
    // Node was started with --frozen-intrinsics.
    return lostError(lease)
  }
  try {
    return lostError(lease)
  } finally {
    Error.stackTraceLimit = limit
  }
}

/** Says how the holder gave up a lease: by the call of a method, or by the end of its section. */
export type GivenUp = 'released' | 'detached' | 'section'

const GIVEN_UP: Readonly<Record<GivenUp, string>> = {
  released: 'released: acquire the lock again',
  detached: 'detached: adopt its ticket, or acquire the lock again',
  section: 'given up when its section ended: use it only within the section',
}

export function releasedError(key: string, how: GivenUp = 'released'): LockError {
  return new LockError('ERR_LOCK_RELEASED', `the lease of ${quote(key)} was ${GIVEN_UP[how]}`, { key })
}

/** Makes the error of a call for one or `count` keys that found `key` held at each of `tries`. */
export function gaveUpError(key: string, tries: number, count: number, contention: Contention): LockTimeoutError {
  return contendedError(key, count, `in ${tries === 1 ? '1 try' : `${tries} tries`}`, contention, 'allow more retries')
}

/** Makes the error of a call for one or `count` keys whose `wait` ended while `key` was held. */
export function timedOutError(key: string, wait: number, count: number, contention: Contention): LockTimeoutError {
  return contendedError(key, count, wait > 0 ? `within ${wait} ms` : 'at once', contention, 'set a longer wait')
}

/** Makes the error of a call that found its lock held. `remedy` names the option to change. */
function contendedError(
  key: string,
  count: number,
  limit: string,
  contention: Contention,
  remedy: string,
): LockTimeoutError {
  const { words, holder, heldFor, waiters } = contention
  const [what, which] = count > 1 ? [`${count} keys`, `${quote(key)} is `] : [quote(key), '']
  // The words for an unknown holder say what to do.
  // The client can't tell a call that was made under its own lock from a concurrent one.
  const advice = contention.isOwn
    ? `. Use the lease if this code has it; otherwise try again later, or ${remedy}`
    : contention === UNKNOWN
      ? ''
      : `. Try again later, or ${remedy}`
  const message = `could not acquire ${what} ${limit}: ${which}${words}${advice}`
  return new LockTimeoutError(message, { key, holder, heldFor, waiters })
}

/**
 * Returns the error of a call whose signal was aborted with the reason `cause`. `began` is when the
 * call began, in ms of {@link now}; `undefined` if the signal was aborted before that.
 */
export function abortedError(key: string, cause: unknown, began?: number): LockAbortedError {
  const message =
    began === undefined
      ? `could not acquire ${quote(key)}: the signal was aborted before the call`
      : `waiting for ${quote(key)} was aborted after ${Math.round(now() - began)} ms: ` +
        'inspect() shows who holds the lock, and who waits'
  return new LockAbortedError(message, { key, cause })
}

/** Returns the error of a closed client. `key` is the lock that the call named, if it named one. */
export function closedError(key?: string): LockClosedError {
  const closed = 'the client was closed (work that goes on needs a new one)'
  return new LockClosedError(key === undefined ? closed : `could not use the lock ${quote(key)}: ${closed}`, { key })
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

/** Returns whether the store's error may pass by itself. */
export function mayPass(error: unknown): boolean {
  if (!isLockError(error)) return false
  const { votes, reason } = error as { votes?: readonly api.Vote[]; reason?: string }
  if (votes !== undefined) {
    return votes.filter(({ vote }) => isLasting(vote)).length < Math.ceil(votes.length / 2)
  }
  return error.code === 'ERR_STORE_UNAVAILABLE' && reason !== undefined && !isLasting(reason)
}

/**
 * Returns whether the user lacks a right: at the store, or at so many servers of a quorum that the
 * others are no majority.
 */
export function isDenied(error: unknown): boolean {
  if (!isLockError(error)) return false
  const { votes, reason } = error as { votes?: readonly api.Vote[]; reason?: string }
  if (votes === undefined) return reason === 'denied'
  return votes.filter(({ vote }) => vote === 'denied').length >= Math.ceil(votes.length / 2)
}

function isLasting(vote: string): boolean {
  return storeReasons.indexOf(vote as api.StoreUnavailableReason) >= ErrorKind.Denied
}

/** Returns the store's error with this `ErrorKind`. */
export function unavailableError(kind: number, message: string, key?: string): LockError {
  if (kind >= WITH_VOTES) return quorumError(message, key)
  const words = message.includes(IN_OTHER_COPY) ? `${message}. ${copyWords()}` : message
  return new StoreUnavailableError(storeReasons[kind] ?? 'internal', words, { key })
}

/** Marks the error of a refused lock file: see `second_copy` in src/store/sqlite/admission.rs. */
const IN_OTHER_COPY = 'is open in another copy of leasehold in this process'

/**
 * Returns the error of a forceRelease() that failed with `error`. If other data lies under the key,
 * the error says what to check. `prefix` is that of the client.
 */
export function notBrokenError(error: unknown, key: string, prefix: string): unknown {
  if (!(error instanceof StoreUnavailableError) || error.reason !== 'wrongtype') return error
  const message =
    `could not release the lock ${quote(key)} by force: ${error.message}. ` +
    `That data is no lock, so it was kept: check the key, and the client's prefix ${quote(prefix)}`
  return new StoreUnavailableError(error.reason, message, { key })
}

/** Returns the error of a quorum, which native code writes as JSON. */
function quorumError(text: string, key?: string): QuorumError {
  const said: { message: string; votes: { store: string; vote: api.Vote['vote'] | number; message: string | null }[] } =
    JSON.parse(text)
  const votes = said.votes.map(({ store, vote, message }): api.Vote => {
    const word = typeof vote === 'number' ? (storeReasons[vote] ?? 'internal') : vote
    return message === null ? { store, vote: word } : { store, vote: word, message }
  })
  return new QuorumError(votes, said.message, { key })
}
