// Knows whether the store of a client can grant leases, for calls that fail fast.

import { Availability } from './native'
import type { Pauses } from './retry'

export class Outage {
  #told: number = Availability.Usable
  /** Functions that end a pause when the store goes away. */
  readonly pauses: Pauses = new Set()

  /** Returns true if a try that failed should not be repeated. */
  get isOn(): boolean {
    return this.#told !== Availability.Usable
  }

  /** Returns true if the next try fails at once. */
  get isAway(): boolean {
    return this.#told === Availability.Away
  }

  /** Notes the {@link Availability} that native code tells. */
  tell(told: number): void {
    this.#told = told
    if (this.isAway) for (const end of [...this.pauses]) end()
  }
}
