// The rules by which the guard notices that leasehold is stopped. No clock, no I/O.

import type { Report } from './takeover'

/**
 * The guard ends the command of a stopped leasehold this long before the lock is no longer safe: a
 * part of the ttl, and the most in ms. In this time, the guard takes the lock over. If these are
 * larger, a shorter stop ends the command. If they are smaller, a slow store answers too late, and
 * the command has no time to clean up.
 */
const [LEAD_PART, LEAD_MOST] = [1 / 6, 1_000]

/**
 * The time between two looks once the lock is about to be unsafe, in ms. At the first look,
 * leasehold may only be slow, and be stopped a moment later. If this is larger, the guard ends the
 * command later; if it is smaller, the guard takes more of a processor while the store is out of
 * reach.
 */
const LOOK_EVERY = 100

/** Decides when the command has to end. All times are in ms since the boot, and passed in. */
export class GuardWatch {
  readonly #lead: number
  #report: Report
  #hasExited = false

  /** `ttl` is the ttl of the lock in ms. */
  constructor(ttl: number, report: Report) {
    this.#lead = Math.min(ttl * LEAD_PART, LEAD_MOST)
    this.#report = report
  }

  /** Replaces the last report. A command that was asked to end stays asked. */
  renewed({ safe, isAsked }: Report): void {
    this.#report = { safe, isAsked: isAsked || this.#report.isAsked }
    this.#hasExited = false
  }

  get report(): Report {
    return this.#report
  }

  /** Returns how long to wait before the next look, in ms; `undefined` without /proc. */
  pause(now: number): number | undefined {
    const { safe } = this.#report
    return safe === undefined ? undefined : Math.max(safe - this.#lead - now, LOOK_EVERY)
  }

  /**
   * Returns whether the guard has to end the command. `isStopped` says whether leasehold is
   * stopped, and `hasExited` whether the command's main process has ended without a signal.
   */
  mustEnd(now: number, isStopped: () => boolean, hasExited: () => boolean): boolean {
    const { safe, isAsked } = this.#report
    if (safe === undefined || now < safe - this.#lead || !isStopped()) return false
    this.#hasExited = !isAsked && hasExited()
    return !this.#hasExited
  }

  /**
   * Whether, at the last look, leasehold was stopped and the command had ended by itself. Such a
   * command left its other processes behind on purpose.
   */
  get hasExited(): boolean {
    return this.#hasExited
  }
}
