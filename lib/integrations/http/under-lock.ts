// Serves one request under its locks.

import type * as api from '../../../index'
import type { InvalidKeys, Refusal, RequestLockOptions } from '../../../types/http'
import { isAboutReservedKey } from '../../lock/side-keys'
import { now } from '../../util/clock'
import type { HoldTime } from './hold-time'
import { refusalOf } from './refusal'

/** The outcome of a request. `gone`: the client left before the request had its lock. */
export type Outcome<T> = { readonly value: T } | { readonly refusal: Refusal | InvalidKeys } | 'gone'

export interface RequestLocks {
  readonly locks: api.LockClient
  readonly keys: string | readonly string[]
  readonly options: RequestLockOptions
  /** Is told how long the locks were held. */
  readonly hold: HoldTime
  /** Its signal aborts when the sender of the request goes away. */
  readonly end: { readonly signal: AbortSignal }
}

/**
 * Runs `work` while the locks are held. Rejects with the error of the work, or with a LockLostError
 * if a lease was lost meanwhile.
 */
export async function underLock<T>(
  { locks, keys, options, hold, end }: RequestLocks,
  work: (lease: api.Lease | api.MultiLease) => Promise<T>,
): Promise<Outcome<T>> {
  let begun: number | undefined
  const gone = end.signal
  const begin = (lease: api.Lease | api.MultiLease) => {
    // Reading its signal makes a ResponseEnd check the connection.
    end.signal.throwIfAborted()
    begun = now()
    return work(lease)
  }
  const withSignal = { ...options, signal: gone }
  try {
    return { value: await locks.withLock(keys, withSignal, begin) }
  } catch (error) {
    if (begun !== undefined) throw error
    // Only the client knows its prefix, so it finds reserved keys only after all other invalid
    // keys.
    if (isAboutReservedKey(error)) return { refusal: { status: 400, error } }
    const refusal = gone.aborted ? undefined : await refusalOf(locks, keys, error, hold)
    if (gone.aborted) return 'gone'
    if (refusal === undefined) throw error
    return { refusal }
  } finally {
    if (begun !== undefined) hold.add(now() - begun)
  }
}
