// Acquires a key that only one client may ever get. The others give up when they find it taken, so
// the answer "taken" has to be true.

import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../../../index'
import { UNKNOWN } from '../../diagnostics/contention'
import { gaveUpError, isDenied, LockLostError, LockTimeoutError, mayPass } from '../../diagnostics/errors'
import { Flag, NO_WAIT } from '../../native/protocol'
import type { Acquirer } from '../acquirer'
import { withFailFast } from '../fail-fast'
import type { Lease } from '../lease'
import { beginOf } from '../lock-request'
import type { Outage } from '../outage'
import type { Pauses } from '../pause'
import { retrying } from '../retry'
import type { RetryPolicy } from '../retry-options'
import type { Sections } from '../sections'

/** The part of a client that {@link acquireOnce} uses. */
export interface OnceContext {
  readonly acquirer: Acquirer
  readonly pauses: Pauses
  readonly sections: Sections
  readonly outage: Outage
  /** The name of the client at the store. */
  readonly name: string
  /** What the client puts before each key. */
  readonly prefix: string
  readonly isQuorum: boolean
  inspect(key: string): Promise<api.LockInfo | null>
}

export interface OnceRequest {
  readonly key: string
  readonly ttl: number
  /** How long to try again after an error of the store, in ms or `Infinity`. */
  readonly wait: number
  readonly signal: AbortSignal | undefined
  /** Whether to try again only while the store can grant leases. Default false. */
  readonly failFast?: boolean
  /**
   * Sets how long, in ms, a lease must still last for its key to count as taken. While another
   * client's lease is shorter, {@link acquireOnce} asks again, because the holder may give the key
   * back. When `wait` has passed, the key counts as taken. If this is not set, shorter leases
   * count, too.
   */
  readonly keptAbove?: number
}

/**
 * The pauses between the tries if the store fails. They are short, because a schedule may have to
 * run at a certain time.
 */
const RETRY: RetryPolicy = { retries: Number.POSITIVE_INFINITY, minDelay: 25, maxDelay: 500, factor: 2, jitter: 0.5 }

/**
 * How long the clean-up after a split vote in a quorum takes at most, in ms. If this is smaller, a
 * lock that nobody holds may count as taken. If it is larger, a client finds out later that the
 * lock is taken.
 */
const SPLIT_MS = 50

const TAKEN = 'taken'

/** The clients whose user has the rights to make the store remember an id. */
const entitled = new WeakSet<OnceContext>()

/** Notes that the store remembers an id of this client, so its user has the needed rights. */
export function noteRemembered(context: OnceContext): void {
  entitled.add(context)
}

/**
 * Rejects with the store's error if the user lacks the right to read what the store knows of a
 * lease. Without that right, the client can acquire and renew a lease, but the store can't remember
 * the id, and the next client would do the task again. After the client's first id, this function
 * sends no request.
 */
async function checkRights(context: OnceContext, key: string, lease: Lease): Promise<void> {
  if (entitled.has(context)) return
  try {
    await context.inspect(key)
  } catch (error) {
    if (isDenied(error)) {
      await lease.release().catch(() => {})
      throw error
    }
  }
  // The store may have taken long to answer.
  lease.assertHeld()
}

/**
 * Resolves with the lease, or with `null` if another client certainly has it. Rejects if the store
 * did not say so. Then no code of this process runs under the lease, and a lease that the store may
 * have granted is released.
 */
export async function acquireOnce(
  context: OnceContext,
  { key, ttl, wait, signal, failFast = false, keptAbove }: OnceRequest,
): Promise<Lease | null> {
  const { acquirer, pauses } = context
  const { defaults } = acquirer
  const request = {
    ...defaults,
    ttl,
    wait: NO_WAIT,
    flags: withFailFast(defaults.flags, failFast) | Flag.Section,
    signal,
    began: beginOf(signal),
  }
  const outage = failFast ? context.outage : undefined
  /**
   * The error of an acquire that the store may have carried out. Until the clean-up has released
   * its lease, that lease is in the way.
   */
  let doubt: unknown
  const ask = async (): Promise<Lease | null> => {
    try {
      const lease = await acquirer.request(key, request)
      if (lease !== null) await checkRights(context, key, lease)
      return lease
    } catch (error) {
      // The lease ended before it was handed over, because this thread was blocked. No code has run
      // under it.
      if (error instanceof LockLostError) return null
      if (mayPass(error)) doubt = error
      throw error
    }
  }
  const attempt = async (): Promise<Lease | typeof TAKEN | null> => {
    const lease = await ask()
    if (lease !== null) return lease
    const info = await context.inspect(key)
    // The lease has ended since, or the votes of a quorum were split and nobody got the lock.
    if (info === null) return null
    const isKept = info.remaining === null || info.remaining > (keptAbove ?? ttl)
    if (isKept) return TAKEN
    if (doubt !== undefined && info.holder === context.name) throw doubt
    if (keptAbove !== undefined) return null
    if (!context.isQuorum) return TAKEN
    // Most nodes also hold the lock after a split vote, for different clients. That does not last
    // long.
    await sleep(SPLIT_MS)
    const then = await context.inspect(key)
    return then !== null && then.fence === info.fence ? TAKEN : null
  }
  try {
    const outcome = await retrying({
      keys: key,
      retry: RETRY,
      wait,
      signal,
      pauses,
      outage,
      attempt,
      gaveUp: async (tries) => gaveUpError(key, tries, 1, UNKNOWN),
    })
    return outcome === TAKEN ? null : outcome
  } catch (error) {
    if (keptAbove !== undefined && error instanceof LockTimeoutError) return null
    throw error
  }
}
