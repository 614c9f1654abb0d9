// Finds the holders of the locks that this process waits for. All calls of a client that wait for a
// lock share one query.

import type * as api from '../../../index'
import { clearTimeout, setTimeout } from '../../util/real-timers'
import type { Waiter } from './holders'

/**
 * The longest time that an answer counts, in ms. If this is larger, spans name earlier holders; if
 * it is smaller, the store is asked more often.
 */
const LONGEST_LIFE = 1_000

interface Lookup {
  /** `null` if the lock is free, or if the store can't tell. */
  readonly info: api.LockInfo | null
  /** Whether the lock was held in this process when the store was asked. */
  readonly heldHere: boolean
}

/** The queries of one client. */
export class Lookups {
  readonly #life: number
  readonly #known = new Map<string, Promise<Lookup>>()
  readonly #timers = new Set<NodeJS.Timeout>()

  /**
   * `waited` is how long a call has waited before it asks, in ms. An answer that is no older than
   * that names a holder for which the call has waited.
   */
  constructor(waited: number) {
    this.#life = Math.min(waited, LONGEST_LIFE)
  }

  of(client: api.LockClient, key: string, waiter: Waiter): Promise<Lookup> {
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const heldHere = waiter.holders().length > 0
    const lookup = client.inspect(key).then(
      (info) => ({ info, heldHere }),
      // The call itself reports a store that fails.
      () => ({ info: null, heldHere }),
    )
    this.#known.set(key, lookup)
    const timer = setTimeout(() => {
      this.#known.delete(key)
      this.#timers.delete(timer)
    }, this.#life).unref()
    this.#timers.add(timer)
    return lookup
  }

  end(): void {
    for (const timer of this.#timers) clearTimeout(timer)
    this.#timers.clear()
    this.#known.clear()
  }
}
