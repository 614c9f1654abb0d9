// Receives the records about the circuit breakers of a client's servers, while the client is open.

import type * as api from '../../index'
import type { Outage } from '../lock/outage'
import { RecordKind } from '../native/protocol'
import { bridge } from '../native/records'
import { deliverRecord, noteRecord, type SlotOwner, slots } from '../native/slots'

class BreakerReports implements SlotOwner {
  readonly #outage: Outage
  readonly #onHealth: (health: api.StoreHealth) => void

  constructor(outage: Outage, onHealth: (health: api.StoreHealth) => void) {
    this.#outage = outage
    this.#onHealth = onHealth
  }

  [noteRecord](): void {}

  [deliverRecord](kind: number, a: number): void {
    if (kind === RecordKind.Breaker) this.#onHealth(JSON.parse(bridge.text(a)))
    else if (kind === RecordKind.Availability) this.#outage.update(a)
  }
}

/**
 * Calls `onHealth` with the health of a server each time native code reports it to `slot`. Updates
 * `outage` with whether the store can grant leases.
 */
export function receiveBreakerReports(slot: number, outage: Outage, onHealth: (health: api.StoreHealth) => void): void {
  slots[slot] = new BreakerReports(outage, onHealth)
}
