// Asking for a key of which only one is to have it, ever: whoever finds it taken goes away. So "taken" has to be true.

import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../index'
import type { Acquirer } from './acquirer'
import { LockLostError, mayPass } from './errors'
import type { Lease } from './lease'
import { Flag } from './native'
import { type Pauses, type Retry, trying } from './retry'
import type { Sections } from './sections'

/** What is asked through. */
export interface Desk {
  readonly acquirer: Acquirer
  readonly pauses: Pauses
  readonly sections: Sections
  /** What the client is called at the store. */
  readonly name: string
  readonly isQuorum: boolean
  inspect(key: string): Promise<api.LockInfo | null>
}

export interface Claim {
  readonly key: string
  readonly ttl: number
  /** How long to try again when the store fails, in ms or `Infinity`. */
  readonly wait: number
  readonly signal: AbortSignal | undefined
}

/** How a store that fails is tried again: soon, since somebody may be waiting for the tick of a clock. */
const RETRY: Retry = { retries: Number.POSITIVE_INFINITY, minDelay: 25, maxDelay: 500, factor: 2, jitter: 0.5 }

/** How long what a split vote leaves at the nodes of a quorum takes to be cleaned up, with plenty to spare. */
const SPLIT_MS = 50

const TAKEN = 'taken'

/**
 * The lease, or `null` if somebody else has it for sure. Rejects if that could not be found out: then nobody here has it, and
 * what the store may have granted is given back.
 */
export async function claim(desk: Desk, { key, ttl, wait, signal }: Claim): Promise<Lease | null> {
  const { acquirer, pauses } = desk
  const { defaults } = acquirer
  const asked = { ...defaults, ttl, wait: -1, flags: defaults.flags | Flag.Section, signal }
  /** An acquire failed, and may have been carried out all the same: until its clean-up has come through, it is in the way. */
  let doubt: unknown
  const ask = async (): Promise<Lease | null> => {
    try {
      return await acquirer.request(key, asked)
    } catch (error) {
      // It ended before it was handed over, because this thread was blocked. Nobody did anything with it.
      if (error instanceof LockLostError) return null
      if (mayPass(error)) doubt = error
      throw error
    }
  }
  const attempt = async (): Promise<Lease | typeof TAKEN | null> => {
    const lease = await ask()
    if (lease !== null) return lease
    const info = await desk.inspect(key)
    // It has ended since; or the votes of a quorum were split, and nobody got it.
    if (info === null) return null
    const isKept = info.remaining === null || info.remaining > ttl
    if (isKept) return TAKEN
    if (doubt !== undefined && info.holder === desk.name) throw doubt
    if (!desk.isQuorum) return TAKEN
    // Where votes are split most nodes are held as well, each by another; but not for long.
    await sleep(SPLIT_MS)
    const then = await desk.inspect(key)
    return then !== null && then.fence === info.fence ? TAKEN : null
  }
  const outcome = await trying({ keys: key, retry: RETRY, wait, signal, pauses, attempt })
  return outcome === TAKEN ? null : outcome
}
