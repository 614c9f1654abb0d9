// A question that is answered once: ping, inspect, list, diagnose, break, close.

import * as errors from './errors'
import { bridge, Kind, note, type Slot, slots, tell } from './native'
import { type Deferred, defer, raise } from './promise'

class Call implements Slot {
  readonly #deferred: Deferred<string | null>
  readonly #key: string | undefined

  constructor(deferred: Deferred<string | null>, key: string | undefined) {
    this.#deferred = deferred
    this.#key = key
  }

  [note](): void {}

  [tell](kind: number, a: number, b: number): void {
    const { resolve, reject } = this.#deferred
    const key = this.#key
    if (kind === Kind.Failed) {
      const message = bridge.text(b)
      reject(() => errors.unavailable(a, message, key))
    } else if (kind === Kind.Closed) {
      reject(() => errors.closed(key))
    } else {
      const told = (kind === Kind.Inspected || kind === Kind.Diagnosed || kind === Kind.Listed) && a === 1
      resolve(told ? bridge.text(b) : kind === Kind.Released && a === 1 ? '' : null)
    }
  }
}

/** Resolves with the answer's text, with an empty one for a plain yes, or with `null` if it has none. */
export function call(slot: number, key?: string): Promise<string | null> {
  const deferred = defer<string | null>()
  slots[slot] = new Call(deferred, key)
  return deferred.promise.catch(raise)
}
