// Who holds the locks that this process waits for. However many wait for a lock, the store is asked once in a while.

import * as timers from 'node:timers'
import type * as api from '../../index'
import type { Waiter } from './holders'

// Read them at load time: with a fake clock that stands still, an old answer would be used for
// ever.
const { clearTimeout, setTimeout } = timers

/** How long an answer is kept at most, in ms. */
const LONGEST_LIFE = 1_000

interface Lookup {
  /** `null`: nobody holds it, or that could not be found out. */
  readonly info: api.LockInfo | null
  /** Whether it was held in this process when the store was asked. */
  readonly heldHere: boolean
}

/** Of one client. */
export class Lookups {
  readonly #life: number
  readonly #known = new Map<string, Promise<Lookup>>()
  readonly #timers = new Set<NodeJS.Timeout>()

  /** Whoever asks has waited for `waited` ms: an answer that is no older tells who has kept it waiting. */
  constructor(waited: number) {
    this.#life = Math.min(waited, LONGEST_LIFE)
  }

  of(client: api.LockClient, key: string, waiter: Waiter): Promise<Lookup> {
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const heldHere = waiter.holders().length > 0
    const lookup = client.inspect(key).then(
      (info) => ({ info, heldHere }),
      // A store that cannot tell is no news: the call itself says so.
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
