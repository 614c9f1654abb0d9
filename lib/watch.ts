// What is told of the circuit breakers before a client's servers, for as long as the client is open.

import type * as api from '../index'
import { bridge, Kind, note, type Slot, slots, tell } from './native'
import type { Outage } from './outage'

class Watch implements Slot {
  readonly #outage: Outage
  readonly #heard: (health: api.StoreHealth) => void

  constructor(outage: Outage, heard: (health: api.StoreHealth) => void) {
    this.#outage = outage
    this.#heard = heard
  }

  [note](): void {}

  [tell](kind: number, a: number): void {
    if (kind === Kind.Breaker) this.#heard(JSON.parse(bridge.text(a)))
    else if (kind === Kind.Availability) this.#outage.tell(a)
  }
}

/**
 * Calls `heard` with the health of each server that native code tells `slot`. Tells `outage`
 * whether the store can grant leases.
 */
export function watch(slot: number, outage: Outage, heard: (health: api.StoreHealth) => void): void {
  slots[slot] = new Watch(outage, heard)
}
