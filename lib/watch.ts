// What is told of the circuit breakers before a client's servers, for as long as the client is open.

import type * as api from '../index'
import { bridge, Kind, note, type Slot, slots, tell } from './native'

class Watch implements Slot {
  readonly #heard: (health: api.StoreHealth) => void

  constructor(heard: (health: api.StoreHealth) => void) {
    this.#heard = heard
  }

  [note](): void {}

  [tell](kind: number, a: number): void {
    if (kind === Kind.Breaker) this.#heard(JSON.parse(bridge.text(a)))
  }
}

/** `heard` is called with what `slot` is told. */
export function watch(slot: number, heard: (health: api.StoreHealth) => void): void {
  slots[slot] = new Watch(heard)
}
