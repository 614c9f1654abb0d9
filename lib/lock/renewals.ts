// The renewals and the detachment of a lease that its user asks for. They run one after the other,
// because the answers to two at a time could not be told apart.

import { type Deferred, defer, ignore, type MakeError, raise } from '../util/deferred'

interface Renewal extends Deferred<void> {
  /** The new ttl, in ms; `undefined` if the ttl stays the same. */
  readonly ttl: number | undefined
}

export class Renewals {
  #current: Renewal | undefined

  /** The ttl that the pending renewal asks for, in ms, if it asks for one. */
  get ttl(): number | undefined {
    return this.#current?.ttl
  }

  /**
   * Calls `ask` when no other renewal is pending. Resolves or rejects as {@link end} says, and
   * rejects with what `ask` throws.
   */
  async run(ask: () => void, ttl?: number): Promise<void> {
    while (this.#current !== undefined) await this.#current.promise.catch(ignore)
    ask()
    this.#current = { ...defer<void>(), ttl }
    await this.#current.promise.catch(raise)
  }

  /**
   * Ends the pending renewal, if there is one: with the error of `failure`, or with success if it
   * is `null`.
   */
  end(failure: MakeError | null): void {
    const renewal = this.#current
    if (renewal === undefined) return
    this.#current = undefined
    if (failure === null) renewal.resolve()
    else renewal.reject(failure)
  }
}
