// One term of a worker: the work under one lease, which begins once and ends once.

import type * as api from '../../index'
import { LockTimeoutError } from '../diagnostics/errors'
import { quote } from '../util/printable'

/** The codes of the errors that a lease rejects with after its end. */
const ENDED: readonly unknown[] = ['ERR_LOCK_LOST', 'ERR_LOCK_RELEASED']

export interface TermHooks {
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

export class Term {
  readonly lease: api.Lease
  readonly #hooks: TermHooks
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined
  /** Resolves when the promise of startWork() has settled; never rejects. */
  #done: Promise<void> = Promise.resolve()

  constructor(lease: api.Lease, hooks: TermHooks) {
    this.lease = lease
    this.#hooks = hooks
  }

  start(): void {
    this.#done = this.#run().catch((error) => this.#workFailed(error))
  }

  async #run(): Promise<void> {
    await this.#hooks.start(this.lease, this.#controller.signal)
  }

  #workFailed(error: unknown): void {
    const { signal } = this.#controller
    if (!signal.aborted && this.lease.isHeld) {
      this.#hooks.failed(error)
      return
    }
    // Work may reject in any way when its signal aborts or its lease ends.
    if (error !== signal.reason && !isEnding(error)) this.#hooks.report(error, 'startWork failed')
  }

  /** Resolves when the work has ended; never rejects. */
  async end(reason: api.StopReason, cause: unknown): Promise<void> {
    this.#controller.abort(cause)
    const { patience } = this.#hooks
    if (patience !== Number.POSITIVE_INFINITY) this.#timer = setTimeout(() => this.#late(), patience)
    await Promise.all([this.#stop(reason), this.#done])
    clearTimeout(this.#timer)
  }

  /** Lets the process end before the work does. */
  unref(): void {
    this.#timer?.unref()
  }

  #late(): void {
    const { key } = this.lease
    const what = `the work under ${quote(key)} did not end within ${this.#hooks.patience} ms`
    const then = 'its lease is no longer renewed, and the lock is free when the work ends or the ttl is over'
    this.#hooks.report(new LockTimeoutError(`${what}; ${then}`, { key }))
    this.#hooks.overdue()
  }

  async #stop(reason: api.StopReason): Promise<void> {
    try {
      await this.#hooks.stop(reason)
    } catch (error) {
      this.#hooks.report(error, 'stopWork failed')
    }
  }
}
