// Counts the sections of one client: user code that runs under its leases. A client that closes
// waits for them.

import { bridge } from '../native/records'
import { clearTimeout, setTimeout } from '../util/real-timers'

export class Sections {
  #running = 0
  /** The number of sections that keep the process alive. */
  #held = 0
  #isUnreferenced = false
  #idle: (() => void) | undefined
  /** Functions to call when the process may end while sections still run. */
  readonly #unrefHooks = new Set<() => void>()

  /**
   * Counts a section that keeps the process alive. Call it before the section asks for its lock, so
   * that close() overlooks no section between its grant and its first line.
   */
  begin(): void {
    this.#running++
    if (this.#held++ === 0 && !this.#isUnreferenced) bridge.hold()
  }

  end(): void {
    if (--this.#held === 0 && !this.#isUnreferenced) bridge.unhold()
    this.#ended()
  }

  /** Counts a section that keeps the process alive by its own means until `letGo` is called. */
  beginSelfHeld(letGo: () => void): void {
    this.#running++
    this.#unrefHooks.add(letGo)
  }

  /** Ends a section that {@link beginSelfHeld} began with the same `letGo`. */
  endSelfHeld(letGo: () => void): void {
    this.#unrefHooks.delete(letGo)
    this.#ended()
  }

  #ended(): void {
    if (--this.#running === 0) this.#idle?.()
  }

  /**
   * Waits within a section. Resolves with `true` after `ms`, or with `false` as soon as the process
   * may end while sections still run. The timer does not keep the process alive: the section does.
   */
  pause(ms: number): Promise<boolean> {
    if (this.#isUnreferenced) return Promise.resolve(false)
    return new Promise((resolve) => {
      const end = (isOver: boolean) => {
        clearTimeout(timer)
        this.#unrefHooks.delete(letGo)
        resolve(isOver)
      }
      const letGo = () => end(false)
      const timer = setTimeout(() => end(true), ms).unref()
      this.#unrefHooks.add(letGo)
    })
  }

  /** Resolves when no section runs. Only one caller at a time may wait. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#idle = resolve
    })
  }

  /** Lets the process end while sections still run. */
  unref(): void {
    if (!this.#isUnreferenced && this.#held > 0) bridge.unhold()
    this.#isUnreferenced = true
    for (const letGo of this.#unrefHooks) letGo()
  }
}
