// Acquires a key that only one client may ever get. The others give up when they find it taken, so
// the answer "taken" has to be true.

import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../index'
import type { Acquirer } from './acquirer'
import { UNKNOWN } from './contention'
import { gaveUp, LockLostError, LockTimeoutError, mayPass } from './errors'
import type { Lease } from './lease'
import { Flag, withFailFast } from './native'
import type { Outage } from './outage'
import { type Pauses, type Retry, trying } from './retry'
import type { Sections } from './sections'

/** What a claim uses of its client. */
export interface Desk {
  readonly acquirer: Acquirer
  readonly pauses: Pauses
  readonly sections: Sections
  readonly outage: Outage
  /** The name of the client at the store. */
  readonly name: string
  readonly isQuorum: boolean
  inspect(key: string): Promise<api.LockInfo | null>
}

export interface Claim {
  readonly key: string
  readonly ttl: number
  /** How long to try again after an error of the store, in ms or `Infinity`. */
  readonly wait: number
  readonly signal: AbortSignal | undefined
  /** Whether to try again only while the store can grant leases. Default false. */
  readonly failFast?: boolean
  /**
   * Sets how long, in ms, a lease must still last for its key to count as taken. While another
   * client's lease is shorter, the claim asks again, because the holder may give the key back. When
   * `wait` has passed, the key counts as taken. If this is not set, shorter leases count, too.
   */
  readonly keptAbove?: number
}

/**
 * The pauses between the tries if the store fails. They are short, because a schedule may have to
 * run at a certain time.
 */
const RETRY: Retry = { retries: Number.POSITIVE_INFINITY, minDelay: 25, maxDelay: 500, factor: 2, jitter: 0.5 }

/**
 * How long the clean-up after a split vote in a quorum takes at most, in ms. If this is smaller, a
 * lock that nobody holds may count as taken. If it is larger, a client finds out later that the
 * lock is taken.
 */
const SPLIT_MS = 50

const TAKEN = 'taken'

/**
 * Resolves with the lease, or with `null` if another client certainly has it. Rejects if that could
 * not be found out: then no code of this process runs under the lease, and a lease that the store
 * may have granted is released.
 */
export async function claim(
  desk: Desk,
  { key, ttl, wait, signal, failFast = false, keptAbove }: Claim,
): Promise<Lease | null> {
  const { acquirer, pauses } = desk
  const { defaults } = acquirer
  const asked = { ...defaults, ttl, wait: -1, flags: withFailFast(defaults.flags, failFast) | Flag.Section, signal }
  const outage = failFast ? desk.outage : undefined
  /**
   * The error of an acquire that the store may have carried out. Until the clean-up has released
   * its lease, that lease is in the way.
   */
  let doubt: unknown
  const ask = async (): Promise<Lease | null> => {
    try {
      return await acquirer.request(key, asked)
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
    const info = await desk.inspect(key)
    // The lease has ended since, or the votes of a quorum were split and nobody got the lock.
    if (info === null) return null
    const isKept = info.remaining === null || info.remaining > (keptAbove ?? ttl)
    if (isKept) return TAKEN
    if (doubt !== undefined && info.holder === desk.name) throw doubt
    if (keptAbove !== undefined) return null
    if (!desk.isQuorum) return TAKEN
    // After a split vote, too, most nodes hold the lock, each for another client. That does not
    // last long.
    await sleep(SPLIT_MS)
    const then = await desk.inspect(key)
    return then !== null && then.fence === info.fence ? TAKEN : null
  }
  try {
    const outcome = await trying({
      keys: key,
      retry: RETRY,
      wait,
      signal,
      pauses,
      outage,
      attempt,
      gaveUp: async (tries) => gaveUp(key, tries, 1, UNKNOWN),
    })
    return outcome === TAKEN ? null : outcome
  } catch (error) {
    if (keptAbove !== undefined && error instanceof LockTimeoutError) return null
    throw error
  }
}
