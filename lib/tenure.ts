// The work of one tenure of a worker: begun once, ended once, and what it throws in between.

import type * as api from '../index'
import { LockTimeoutError, quote } from './errors'

/** What a lease that has ended answers. */
const ENDED: readonly unknown[] = ['ERR_LOCK_LOST', 'ERR_LOCK_RELEASED']

export interface Work {
  start(lease: api.Lease, signal: AbortSignal): unknown
  stop(reason: api.StopReason): unknown
  /** How long the work may take to end before it is {@link overdue}, in ms or `Infinity`. */
  readonly patience: number
  /** Called when the work failed by itself. */
  failed(error: unknown): void
  /** Called when the work has not ended in time. */
  overdue(): void
  /** Called for any other error. `what` says what failed, if the error alone does not. */
  report(error: unknown, what?: string): void
}

/** Returns true if work rejects with `error` because its signal aborted or its lease ended. */
function isEnding(error: unknown): boolean {
  try {
    const { name, code } = Object(error) as { name?: unknown; code?: unknown }
    return name === 'AbortError' || ENDED.includes(code)
  } catch {
    // A getter of the error throws, or the error is a proxy that throws.
    return false
  }
}

export class Tenure {
  readonly lease: api.Lease
  readonly #work: Work
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined
  /** Resolves when the promise of startWork() has settled; never rejects. */
  #done: Promise<void> = Promise.resolve()

  constructor(lease: api.Lease, work: Work) {
    this.lease = lease
    this.#work = work
  }

  start(): void {
    this.#done = this.#run().catch((error) => this.#broken(error))
  }

  async #run(): Promise<void> {
    await this.#work.start(this.lease, this.#controller.signal)
  }

  #broken(error: unknown): void {
    const { signal } = this.#controller
    if (!signal.aborted && this.lease.isHeld) {
      this.#work.failed(error)
      return
    }
    // Work that ends with its signal or its lease ends as it should, whatever it says about that.
    if (error !== signal.reason && !isEnding(error)) this.#work.report(error, 'startWork failed')
  }

  /** Resolves when the work has ended; never rejects. */
  async end(reason: api.StopReason, cause: unknown): Promise<void> {
    this.#controller.abort(cause)
    const { patience } = this.#work
    if (patience !== Number.POSITIVE_INFINITY) this.#timer = setTimeout(() => this.#late(), patience)
    await Promise.all([this.#stop(reason), this.#done])
    clearTimeout(this.#timer)
  }

  /** Lets the process end before the work does. */
  letGo(): void {
    this.#timer?.unref()
  }

  #late(): void {
    const { key } = this.lease
    const what = `the work under ${quote(key)} did not end within ${this.#work.patience} ms`
    const then = 'its lease is no longer renewed, and the lock is free when the work ends or the ttl is over'
    this.#work.report(new LockTimeoutError(`${what}; ${then}`, { key }))
    this.#work.overdue()
  }

  async #stop(reason: api.StopReason): Promise<void> {
    try {
      await this.#work.stop(reason)
    } catch (error) {
      this.#work.report(error, 'stopWork failed')
    }
  }
}
