// The end of a client: what waits is refused, sections run to their end, and then the store is left.

import type { Host } from './acquirer'
import { call } from './call'
import { Lease } from './lease'
import { bridge } from './native'
import { Drain } from './sections'

/** What a client does about its end. */
interface Leaving {
  /** Native code is about to forget it. */
  leaving(): void
  /** Native code has forgotten it. */
  left(): void
}

export class Closing {
  /** Resolves when the client is closed, or when sections have outlived the drain; never rejects. */
  readonly over: Promise<void>
  readonly #host: Host
  readonly #client: Leaving
  #resolve: () => void = () => {}
  #drain: Drain | undefined

  constructor(host: Host, client: Leaving) {
    this.#host = host
    this.#client = client
    this.over = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  /** Begins, with `drain` ms for sections. Apart from the constructor, because listeners that it calls may close the client. */
  begin(drain: number): void {
    const { id, pauses, sections } = this.#host
    // Schedules, workers, and calls that pause between two tries.
    for (const end of pauses) end()
    bridge.drainClient(id)
    const idle = sections.idle()
    this.#drain = new Drain(idle, drain)
    this.#end(idle, this.#drain).then(this.#resolve)
  }

  /** Ends the drain `ms` from now, unless it ends sooner. */
  limit(ms: number): void {
    this.#drain?.limit(ms)
  }

  async #end(idle: Promise<void>, drain: Drain): Promise<void> {
    if (await drain.over) return this.#leave()
    const { id, sections } = this.#host
    Lease.runOut(id)
    // A section that never ends is not to keep the process alive. One that does end still finds its store, to release its lease.
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
