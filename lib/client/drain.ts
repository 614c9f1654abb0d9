import { now } from '../util/clock'
import { clearTimeout, setTimeout } from '../util/real-timers'

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
