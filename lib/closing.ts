// The end of a client: it refuses waiting calls, lets its sections run to their end, and then
// closes its store.

import type { Host } from './acquirer'
import { call } from './call'
import { Lease } from './lease'
import { bridge } from './native'
import { Drain } from './sections'

/** Callbacks of a client that closes. */
interface Leaving {
  /** Called before native code forgets the client. */
  leaving(): void
  /** Called when native code has forgotten the client. */
  left(): void
}

export class Closing {
  /**
   * Resolves when the client is closed, or when a section has outlived the drain; never rejects.
   */
  readonly over: Promise<void>
  readonly #host: Host
  readonly #client: Leaving
  #resolve: () => void = () => {}
  #drain: Drain | undefined
  /** The shortest drain that callers asked for before the drain began, in ms. */
  #limit = Number.POSITIVE_INFINITY

  constructor(host: Host, client: Leaving) {
    this.#host = host
    this.#client = client
    this.over = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  /**
   * Begins the end, with `drain` ms for sections. Not part of the constructor: the listeners that
   * this calls may close the client again.
   */
  begin(drain: number): void {
    const { id, pauses, sections } = this.#host
    // Ends schedules, workers, and calls that pause between two tries.
    for (const end of pauses) end()
    bridge.drainClient(id)
    const idle = sections.idle()
    this.#drain = new Drain(idle, Math.min(drain, this.#limit))
    this.#end(idle, this.#drain).then(this.#resolve)
  }

  /** Ends the drain `ms` from now, unless it ends sooner. */
  limit(ms: number): void {
    if (this.#drain === undefined) this.#limit = Math.min(this.#limit, ms)
    else this.#drain.limit(ms)
  }

  async #end(idle: Promise<void>, drain: Drain): Promise<void> {
    if (await drain.over) return this.#leave()
    const { id, sections } = this.#host
    this.#host.isDrained = true
    Lease.runOut(id)
    // A section that never ends must not keep the process alive. A section that ends still needs
    // the store, to release its lease.
    sections.letGo()
    idle.then(() => this.#leave())
  }

  async #leave(): Promise<void> {
    this.#client.leaving()
    try {
      await call(bridge.closeClient(this.#host.id))
    } catch (error) {
      this.#host.failed(error)
    }
    this.#client.left()
  }
}
