// The renewals and the detachment of a lease that its user asks for. They run one after the other,
// because the answers to two at a time could not be told apart.

import { type Deferred, defer, ignore, type MakeError, raise } from '../util/deferred'

interface Renewal extends Deferred<void> {
  /** The new ttl, in ms; `undefined` if the ttl stays the same. */
  readonly ttl: number | undefined
}

export class Renewals {
  #current: Renewal | undefined

  get isPending(): boolean {
    return this.#current !== undefined
  }

  /** The ttl that the pending renewal asks for, in ms, if it asks for one. */
  get ttl(): number | undefined {
    return this.#current?.ttl
  }

  /** Resolves when the pending renewal has ended in any way. */
  async ended(): Promise<void> {
    await this.#current?.promise.catch(ignore)
  }

  /** Resolves or rejects as {@link end} says. */
  begin(ttl: number | undefined): Promise<void> {
    this.#current = { ...defer<void>(), ttl }
    return this.#current.promise.catch(raise)
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
