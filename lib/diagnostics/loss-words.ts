// Says why a lease was lost, and what to do.

import type * as api from '../../index'
import { Flag } from '../native/protocol'
import { printable } from '../util/printable'

/** A lease that is lost. Times are in ms. */
export interface LostLease {
  readonly key: string
  /** The `Phase` of the lease: it says how it was lost. */
  readonly phase: number
  /** The {@link LossFacts}, as native code writes them; `null` if there are none. */
  readonly facts: string | null
  readonly ttl: number
  /** `maxHold` is 0 if the lease had no limit. `flags` are bits of `Flag`. */
  readonly request: { readonly maxHold: number; readonly flags: number }
  /** The store of the lease's client. */
  readonly store: api.StoreIdentity
  /** The `maxStall` of the lease's client. */
  readonly maxStall: number
}

/** What native code knows of a loss. Times are in ms. */
export interface LossFacts {
  /** How long after the lease's end this thread noticed the loss. */
  readonly late: number
  /**
   * How the last renewal failed, and how long before the lease's end; `null` if it did not fail.
   * `error` is an `ErrorKind`.
   */
  readonly failure: { readonly ago: number; readonly error: number; readonly text: string } | null
}

/**
 * The most characters of a store's URL in a message. If this is larger, a quorum of many servers
 * fills the log; if it is smaller, a path may be cut off.
 */
const MOST_OF_URL = 500

/**
 * The least delay of a thread that messages name, in ms. If this is larger, they hide pauses that a
 * user wants to know of; if it is smaller, they name the delays of a busy machine.
 */
const LATE = 100

/** Says what to do if another client may be at work. */
const STOP = 'Stop the work: the next holder may have begun'

const WORDS: Readonly<Record<api.LossReason, (lease: LostLease, facts: LossFacts) => string>> = {
  expired: expiredWords,
  taken: () => `another client holds the lock now. ${STOP}`,
  missing: ({ store }) => `${missingFrom(store)}. ${STOP}`,
  stalled: stalledWords,
  closed: () => 'the client was closed',
}

/** Returns the end of the sentence "the lease is lost: …". */
export function lossWords(reason: api.LossReason, lease: LostLease, facts: LossFacts): string {
  return WORDS[reason](lease, facts)
}

/** Returns the end of an error about a lost lease: where the lock is, and how to see its holder. */
export function lookWords(reason: api.LossReason, store: api.StoreIdentity): string {
  if (reason === 'closed') return ''
  // The words for a missing lease name the store.
  const where = reason === 'missing' ? '' : `. The lock is ${store.kind === 'sqlite' ? 'in' : 'at'} ${placeOf(store)}`
  // The command is another process, which can't see a store in this process's memory.
  const how = store.kind === 'memory' ? 'inspect()' : 'inspect() or `leasehold inspect`'
  return `${where}. ${how} shows who holds it now`
}

function stalledWords({ maxStall }: LostLease, { late }: LossFacts): string {
  const noticed = late < LATE ? '' : `, and noticed the loss ${Math.round(late)} ms late`
  return (
    `this thread was blocked for longer than its client's maxStall of ${maxStall} ms${noticed}. ` +
    'Use a worker thread, or raise maxStall'
  )
}

function expiredWords({ ttl, request: { maxHold, flags } }: LostLease, { late, failure }: LossFacts): string {
  const unrenewed = `was not renewed within its ttl of ${ttl} ms`
  const noticed = late < LATE ? '' : `; this thread noticed the loss ${Math.round(late)} ms late`
  if (failure !== null) {
    const limit = maxHold > 0 ? `, or had reached its maxHold of ${maxHold} ms` : ''
    return `it ${unrenewed}${limit}${noticed}. Check the store, or raise ttl`
  }
  if (maxHold > 0) {
    return (
      `it had reached its maxHold of ${maxHold} ms, or ${unrenewed}${noticed}. ` +
      'Raise maxHold, or do less work under one lease'
    )
  }
  if ((flags & Flag.NoRenewal) !== 0)
    return `it ${unrenewed}${noticed}. autoRenew is off: renew it sooner, or raise ttl`
  // The engine's thread renews the lease even if JavaScript is blocked.
  return (
    `it ${unrenewed}${noticed}. Probably, this process or its machine was stopped or overloaded (a debugger, sleep, a limit of ` +
    'processor time), or the store was silent: look for long pauses, or raise ttl'
  )
}

/** Names the store that does not have a lease any more, and says what may have happened there. */
function missingFrom(store: api.StoreIdentity): string {
  const missing = `${placeOf(store)} knows nothing of it any more`
  if (store.kind === 'memory') return `${missing}: the lock was released by force`
  if (store.kind === 'sqlite') return `${missing}: the file was removed or replaced, or the lock was released by force`
  return `${missing}: it lost the lease (a restart, a failover or an eviction), or the lock was released by force`
}

/** Names a store in a sentence. */
export function placeOf({ kind, url }: api.StoreIdentity): string {
  const name = printable(url, MOST_OF_URL)
  if (kind !== 'sqlite') return `the store ${name}`
  const path = name.slice('sqlite:'.length)
  return path === '' ? 'the default lock file' : `the lock file ${path}`
}
