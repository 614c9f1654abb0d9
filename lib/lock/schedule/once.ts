// Does a task once in the cluster. A lease that is kept after the task remembers that it is done:
// see docs/cron.md.

import type * as api from '../../../index'
import { isDenied, LockError, LockLostError } from '../../diagnostics/errors'
import { Flag } from '../../native/protocol'
import {
  badType,
  badValue,
  checkBoolean,
  checkFunction,
  checkMs,
  checkMsOrInfinity,
  checkSignal,
  checkTtl,
  MIN_TTL,
  outOfRange,
  readOptions,
} from '../../util/arguments'
import type { Lease } from '../lease'
import { endSection, remember as rememberLease } from '../lease-methods'
import { onceKeyOf } from '../once-key'
import { acquireOnce, noteRemembered, type OnceContext, type OnceRequest } from './acquire-once'

/** How long the store remembers a task by default, in ms. */
export const KEEP = 3_600_000
/** The shortest and longest pauses between tries to make the store remember a task, in ms. */
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

/** A task that is done once. */
export interface OnceTask<T> extends OnceRequest {
  readonly keep: number
  readonly onFailure: 'forget' | 'keep'
  work(lease: Lease): T | PromiseLike<T>
  /** Called for a failure that no promise rejects with. */
  failed(error: unknown): void
}

/** Checks the arguments of once(). */
export function parseOnce<T>(
  { acquirer }: OnceContext,
  key: unknown,
  id: unknown,
  fn: unknown,
  given: unknown,
): Omit<OnceTask<T>, 'failed'> {
  const onceKey = onceKeyOf(key, id)
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
  return { key: onceKey, ttl, wait, signal, failFast, keep, onFailure, work: fn as (lease: Lease) => T }
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

export async function runOnce<T>(context: OnceContext, task: OnceTask<T>): Promise<api.OnceOutcome<T>> {
  // Keeps the process alive until this promise settles, whatever the work waits for.
  context.sections.begin()
  try {
    const lease = await acquireOnce(context, task)
    if (lease === null) return { ran: false }
    const value = await runTask(context, task, lease)
    lease[endSection]()
    return { ran: true, value, kept: await remember(context, task, lease) }
  } finally {
    context.sections.end()
  }
}

async function runTask<T>(context: OnceContext, task: OnceTask<T>, lease: Lease): Promise<T> {
  try {
    return await task.work(lease)
  } catch (error) {
    lease[endSection]()
    if (task.onFailure === 'keep') await remember(context, task, lease)
    else await lease.release().catch((failure) => task.failed(failure))
    throw error
  }
}

/**
 * Makes the store remember the id, and returns true if the store confirmed that. Tries again while
 * the lease is held, because no other client runs the work then, and until the client's drain is
 * over. Gives up at once if the user has lost the right to write the id: the next try would fail,
 * too.
 */
async function remember(context: OnceContext, { keep, failed }: OnceTask<unknown>, lease: Lease): Promise<boolean> {
  for (let pause = SHORTEST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    try {
      await lease[rememberLease](keep)
      noteRemembered(context)
      return true
    } catch (error) {
      if (error instanceof LockLostError) {
        failed(error)
        return false
      }
      // The work itself has released or detached the lease.
      if (error instanceof LockError && error.code === 'ERR_LOCK_RELEASED') return false
      const isOver = isDenied(error)
      if (!isOver && (await context.sections.pause(pause))) continue
      failed(error)
      if (isOver) await lease.release().catch(failed)
      return false
    }
  }
}
