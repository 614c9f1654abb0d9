// The end of a client: it refuses waiting calls, lets its sections run to their end, and then
// closes its store.

import type { ClientContext } from '../lock/client-context'
import { endAdoptions, letLeasesExpire } from '../lock/client-leases'
import { bridge } from '../native/records'
import { answerOf } from './answer'
import { Drain } from './drain'

/** Callbacks of a client that closes. */
interface CloseHooks {
  /** Called before native code forgets the client. */
  beforeClose(): void
  /** Called when native code has forgotten the client. */
  afterClose(): void
}

export class Closing {
  /**
   * Resolves when the client is closed, or when a section has outlived the drain; never rejects.
   */
  readonly over: Promise<void>
  readonly #context: ClientContext
  readonly #hooks: CloseHooks
  #resolve: () => void = () => {}
  #drain: Drain | undefined
  /** The shortest drain that callers asked for before the drain began, in ms. */
  #limit = Number.POSITIVE_INFINITY

  constructor(context: ClientContext, hooks: CloseHooks) {
    this.#context = context
    this.#hooks = hooks
    this.over = new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  /**
   * Begins the end, with `drain` ms for sections. This is not part of the constructor, because the
   * listeners that it calls may close the client again.
   */
  begin(drain: number): void {
    const { id, pauses, sections } = this.#context
    // End schedules, workers, and calls that pause between two tries.
    for (const end of pauses) end()
    endAdoptions(id)
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
    if (await drain.over) return this.#closeStore()
    const { id, sections } = this.#context
    this.#context.isDrained = true
    letLeasesExpire(id)
    // A section that never ends must not keep the process alive. A section that ends still needs
    // the store, to release its lease.
    sections.unref()
    idle.then(() => this.#closeStore())
  }

  async #closeStore(): Promise<void> {
    this.#hooks.beforeClose()
    try {
      await answerOf(bridge.closeClient(this.#context.id))
    } catch (error) {
      this.#context.failed(error)
    }
    this.#hooks.afterClose()
  }
}
