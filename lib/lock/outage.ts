// Knows whether the store of a client can grant leases, for calls that fail fast.

import { Availability } from '../native/protocol'
import type { Pauses } from './pause'

export class Outage {
  #availability: number = Availability.Usable
  /** Functions that end a pause when the store goes away. */
  readonly pauses: Pauses = new Set()

  /** Returns true if a try that failed should not be repeated. */
  get isOn(): boolean {
    return this.#availability !== Availability.Usable
  }

  /** Returns true if the next try fails at once. */
  get isAway(): boolean {
    return this.#availability === Availability.Away
  }

  /** Notes the {@link Availability} that native code reports. */
  update(told: number): void {
    this.#availability = told
    if (this.isAway) for (const end of [...this.pauses]) end()
  }
}
