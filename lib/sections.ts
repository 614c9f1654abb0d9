// The sections of one client: the user's code that runs under its leases. A client that is closed waits for them.

// Not the globals: under a fake clock that stands still a test would wait for its client for ever.
import { clearTimeout, setTimeout } from 'node:timers'
import { bridge } from './native'

export class Sections {
  #running = 0
  /** How many of them the process waits for. */
  #held = 0
  #isLetGo = false
  #idle: (() => void) | undefined

  /**
   * Counts a section from when it asks for its lock: so none is overlooked between its grant and its first line. It keeps
   * the process alive.
   */
  begin(): void {
    this.#running++
    if (this.#held++ === 0 && !this.#isLetGo) bridge.hold()
  }

  end(): void {
    if (--this.#held === 0 && !this.#isLetGo) bridge.unhold()
    this.endAside()
  }

  /** Counts one that does not keep the process alive. */
  beginAside(): void {
    this.#running++
  }

  endAside(): void {
    if (--this.#running === 0) this.#idle?.()
  }

  /** Resolves when none runs. One at a time may wait for that. */
  idle(): Promise<void> {
    if (this.#running === 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#idle = resolve
    })
  }

  /** Lets the process end without them. */
  letGo(): void {
    if (!this.#isLetGo && this.#held > 0) bridge.unhold()
    this.#isLetGo = true
  }
}

/** The time that a closing client gives its sections. */
export class Drain {
  /** Resolves with `true` when the last section has ended, or with `false` when the time is over. */
  readonly over: Promise<boolean>
  #end: (ended: boolean) => void = () => {}
  #at = Number.POSITIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  /** @param ended resolves when the last section has ended */
  constructor(ended: Promise<void>, ms: number) {
    this.over = new Promise((resolve) => {
      this.#end = resolve
    })
    ended.then(() => {
      clearTimeout(this.#timer)
      this.#end(true)
    })
    this.limit(ms)
  }

  /** Ends it `ms` from now, unless it ends sooner. */
  limit(ms: number): void {
    const at = performance.now() + ms
    if (at >= this.#at) return
    this.#at = at
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#end(false), ms)
  }
}
