/**
 * The events for the state machine of a worker. They are handled one after the other: a listener
 * may start or stop the worker while an event is handled.
 */
export class EventQueue {
  readonly #handle: (event: number) => void
  readonly #pending: number[] = []
  #isHandling = false

  constructor(handle: (event: number) => void) {
    this.#handle = handle
  }

  /** Handles the events, after those that are handled or pending already. */
  send(...events: readonly number[]): void {
    this.#pending.push(...events)
    if (this.#isHandling) return
    this.#isHandling = true
    try {
      for (let event = this.#pending.shift(); event !== undefined; event = this.#pending.shift()) this.#handle(event)
    } finally {
      this.#isHandling = false
    }
  }
}
