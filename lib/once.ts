// Doing a thing once in the cluster. That it is done is remembered by its lease, which nobody releases: see docs/cron.md.

import type * as api from '../index'
import {
  badType,
  badValue,
  checkBoolean,
  checkFunction,
  checkKey,
  checkMs,
  checkMsOrInfinity,
  checkSignal,
  checkText,
  checkTtl,
  MIN_TTL,
  outOfRange,
  readOptions,
} from './arguments'
import { type Claim, claim, type Desk } from './claim'
import { LockError, LockLostError } from './errors'
import type { Lease } from './lease'
import { Flag } from './native'

/** How long it is remembered, unless somebody says otherwise. */
export const KEEP = 3_600_000
const MAX_KEY = 1_024
/** The pauses between attempts to have the store remember. */
const SHORTEST_PAUSE = 25
const LONGEST_PAUSE = 500

const ONCE_OPTIONS = [
  'keep',
  'ttl',
  'wait',
  'failFast',
  'onFailure',
  'signal',
] as const satisfies (keyof api.OnceOptions)[]

/** What is to be done once. */
export interface Deed<T> extends Claim {
  readonly keep: number
  readonly onFailure: 'forget' | 'keep'
  work(lease: Lease): T | PromiseLike<T>
  /** A failure that no promise tells. */
  failed(error: unknown): void
}

/** Checks what a user asks for. */
export function parseOnce<T>(
  { acquirer }: Desk,
  key: unknown,
  id: unknown,
  fn: unknown,
  given: unknown,
): Omit<Deed<T>, 'failed'> {
  const marker = markerOf(key, id)
  if (typeof given === 'function') throw badType('fn', 'of type function', fn, 'options: they come after the function')
  checkFunction('fn', fn)
  const options = readOptions<api.OnceOptions>(given, ONCE_OPTIONS)
  const { ttl = acquirer.defaults.ttl, wait = acquirer.defaults.wait, onFailure = 'forget', signal } = options
  checkTtl(ttl)
  const keep = checkKeep(options.keep, ttl, KEEP)
  checkMsOrInfinity('wait', wait, 0)
  const { failFast = (acquirer.defaults.flags & Flag.FailFast) !== 0 } = options
  checkBoolean('failFast', failFast)
  if (typeof onFailure !== 'string') throw badType('onFailure', 'of type string', onFailure)
  if (onFailure !== 'forget' && onFailure !== 'keep') {
    throw badValue('The "onFailure" option must be "forget" (another may try) or "keep" (nobody may)')
  }
  if (signal !== undefined) checkSignal('signal', signal)
  return { key: marker, ttl, wait, signal, failFast, keep, onFailure, work: fn as (lease: Lease) => T }
}

/**
 * Returns how long the store remembers an id, in ms. The default is `usual`, or the ttl if that is
 * longer: a lease never ends earlier than it would have.
 */
export function checkKeep(given: unknown, ttl: number, usual: number): number {
  if (given === undefined) return Math.max(usual, ttl)
  checkMs('keep', given, MIN_TTL)
  if (given < ttl) {
    const range =
      `at least "ttl", ${ttl} ms: what is done is remembered by its lease, "ttl" is how long that lives without renewal, "keep" how ` +
      'long once the work is done, and it can\'t end sooner than it would have. Give a longer "keep", or a shorter "ttl"'
    throw outOfRange('keep', range, `${given} ms`)
  }
  return given
}

/**
 * The lock that stands for `id`. No two pairs have the same: the last @ is the one put in here, since ids have none any more.
 * Nor have they braces, which would tell Redis Cluster where to put it.
 */
export function markerOf(key: unknown, id: unknown): string {
  checkKey(key)
  checkText('id', id, 1, MAX_KEY)
  const escaped = id.replace(/[%@{}]/g, (char) => `%${char.charCodeAt(0).toString(16)}`)
  const marker = `${key}@once:${escaped}`
  const bytes = Buffer.byteLength(marker)
  if (bytes > MAX_KEY) {
    throw outOfRange('id.length', `so short that key and id make a lock of <= ${MAX_KEY} bytes`, `${bytes} bytes`)
  }
  return marker
}

/** Returns whether `key` is one that {@link markerOf} makes. */
export function isMarker(key: string): boolean {
  return /@once:[^@{}]+$/.test(key)
}

export async function runOnce<T>(desk: Desk, deed: Deed<T>): Promise<api.OnceOutcome<T>> {
  // Keeps the process alive until this promise settles, whatever the work waits for.
  desk.sections.begin()
  try {
    const lease = await claim(desk, deed)
    if (lease === null) return { ran: false }
    const value = await attempted(desk, deed, lease)
    return { ran: true, value, kept: await keepMark(desk, deed, lease) }
  } finally {
    desk.sections.end()
  }
}

async function attempted<T>(desk: Desk, deed: Deed<T>, lease: Lease): Promise<T> {
  try {
    return await deed.work(lease)
  } catch (error) {
    if (deed.onFailure === 'keep') await keepMark(desk, deed, lease)
    else await lease.release().catch((failure) => deed.failed(failure))
    throw error
  }
}

/**
 * Makes the store remember the id, and returns true if the store confirmed that. Tries again while
 * the lease is held, because no other client runs the work then, and until the client's drain is
 * over.
 */
async function keepMark({ sections }: Desk, { keep, failed }: Deed<unknown>, lease: Lease): Promise<boolean> {
  for (let pause = SHORTEST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    try {
      await lease.detach(keep)
      return true
    } catch (error) {
      if (error instanceof LockLostError) {
        failed(error)
        return false
      }
      // The work has released it, or handed it on itself.
      if (error instanceof LockError && error.code === 'ERR_LOCK_RELEASED') return false
      if (await sections.pause(pause)) continue
      failed(error)
      return false
    }
  }
}
