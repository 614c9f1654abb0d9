// One request, served under its locks.

import type * as api from '../../index'
import type { InvalidKeys, Refusal, RequestLockOptions } from '../../types/http'
import { now } from '../clock'
import { isAboutSideKey } from '../side-keys'
import type { HoldTime } from './hold-time'
import { refusalOf } from './refusal'

/** Says what came of a request. `gone`: the client left before the request had its lock. */
export type Outcome<T> = { readonly value: T } | { readonly refusal: Refusal | InvalidKeys } | 'gone'

export interface Wanted {
  readonly locks: api.LockClient
  readonly keys: string | readonly string[]
  readonly options: RequestLockOptions
  /** Learns how long the locks are held. */
  readonly hold: HoldTime
  /** Aborts when the sender goes away. */
  readonly gone: AbortSignal
}

/**
 * Runs `work` while the locks are held. Rejects with what it throws, with a LockLostError if a lease was lost meanwhile, or with
 * what is wrong with the keys.
 */
export async function underLock<T>(
  { locks, keys, options, hold, gone }: Wanted,
  work: (lease: api.Lease | api.MultiLease) => Promise<T>,
): Promise<Outcome<T>> {
  let begun: number | undefined
  const begin = (lease: api.Lease | api.MultiLease) => {
    begun = now()
    return work(lease)
  }
  const asked = { ...options, signal: gone }
  try {
    return { value: await locks.withLock(keys, asked, begin) }
  } catch (error) {
    if (begun !== undefined) throw error
    // Only the client knows its prefix, so it finds these keys only after all other invalid keys.
    if (isAboutSideKey(error)) return { refusal: { status: 400, error } }
    const refusal = gone.aborted ? undefined : await refusalOf(locks, keys, error, hold)
    if (gone.aborted) return 'gone'
    if (refusal === undefined) throw error
    return { refusal }
  } finally {
    if (begun !== undefined) hold.add(now() - begun)
  }
}
