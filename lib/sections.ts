// Counts the sections of one client: user code that runs under its leases. A client that closes
// waits for them.

import * as timers from 'node:timers'
import { now } from './clock'
import { bridge } from './native'

// Read them at load time: with a fake clock that stands still, close() would never resolve.
const { clearTimeout, setTimeout } = timers

export class Sections {
  #running = 0
  /** The number of sections that keep the process alive. */
  #held = 0
  #isLetGo = false
  #idle: (() => void) | undefined
  /** Functions to call when the process may end while sections still run. */
  readonly #asides = new Set<() => void>()

  /**
   * Counts a section that keeps the process alive. Call it before the section asks for its lock, so
   * that close() overlooks no section between its grant and its first line.
   */
  begin(): void {
    this.#running++
    if (this.#held++ === 0 && !this.#isLetGo) bridge.hold()
  }

  end(): void {
    if (--this.#held === 0 && !this.#isLetGo) bridge.unhold()
    this.#ended()
  }

  /** Counts a section that keeps the process alive by its own means until `letGo` is called. */
  beginAside(letGo: () => void): void {
    this.#running++
    this.#asides.add(letGo)
  }

  /** Ends a section that {@link beginAside} began with the same `letGo`. */
  endAside(letGo: () => void): void {
    this.#asides.delete(letGo)
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
    if (this.#isLetGo) return Promise.resolve(false)
    return new Promise((resolve) => {
      const end = (isOver: boolean) => {
        clearTimeout(timer)
        this.#asides.delete(letGo)
        resolve(isOver)
      }
      const letGo = () => end(false)
      const timer = setTimeout(() => end(true), ms).unref()
      this.#asides.add(letGo)
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
  letGo(): void {
    if (!this.#isLetGo && this.#held > 0) bridge.unhold()
    this.#isLetGo = true
    for (const letGo of this.#asides) letGo()
  }
}

/** Limits the time that a closing client gives its sections. */
export class Drain {
  /**
   * Resolves with `true` when the last section has ended, or with `false` when the time is over.
   */
  readonly over: Promise<boolean>
  #resolve: (ended: boolean) => void = () => {}
  #at = Number.POSITIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  /** @param ended resolves when the last section has ended */
  constructor(ended: Promise<void>, ms: number) {
    this.over = new Promise((resolve) => {
      this.#resolve = resolve
    })
    ended.then(() => this.#end(true))
    this.limit(ms)
  }

  #end(ended: boolean): void {
    this.#isOver = true
    clearTimeout(this.#timer)
    this.#resolve(ended)
  }

  /** Ends the drain `ms` from now, unless it ends sooner. */
  limit(ms: number): void {
    const at = now() + ms
    if (this.#isOver || at >= this.#at) return
    this.#at = at
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#end(false), ms)
  }
}
