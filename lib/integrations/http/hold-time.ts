// Measures how long the requests of one middleware hold their locks. Pure: the caller passes in the
// times.

/**
 * The share of the latest hold in the smoothed time, as for the round trips of TCP (RFC 6298). If
 * this is larger, one slow request changes the estimates for all; if it is smaller, the estimates
 * follow a change of the load later.
 */
const WEIGHT = 1 / 8
/**
 * The longest estimate, in s. An estimate assumes that every waiter stays, and holds the lock for
 * the usual time. If this is larger, clients stay away for long after the queue has emptied; if it
 * is smaller, clients of long jobs ask more often.
 */
const LONGEST = 60

export class HoldTime {
  /** The smoothed hold time, in ms; 0 before the first hold. */
  #usual = 0

  /** Notes that a lock was held for `ms`. */
  add(ms: number): void {
    this.#usual = this.#usual === 0 ? ms : this.#usual + WEIGHT * (ms - this.#usual)
  }

  /**
   * Estimates after how many seconds a held lock with `waiting` waiters is free. Returns a whole
   * number from 1 to {@link LONGEST}; 1 if no lock was held yet.
   */
  secondsBehind(waiting: number): number {
    return Math.min(Math.max(Math.ceil(((waiting + 1) * this.#usual) / 1_000), 1), LONGEST)
  }
}
