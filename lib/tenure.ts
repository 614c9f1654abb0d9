// The work of one tenure of a worker: begun once, ended once, and what it throws in between.

import type * as api from '../index'
import { LockTimeoutError, quote } from './errors'

/** What a lease that has ended answers. */
const ENDED: readonly unknown[] = ['ERR_LOCK_LOST', 'ERR_LOCK_RELEASED']

export interface Work {
  start(lease: api.Lease, signal: AbortSignal): unknown
  stop(reason: api.StopReason): unknown
  /** How long to wait for its end, in ms or `Infinity`. */
  readonly patience: number
  /** It failed by itself. */
  failed(error: unknown): void
  /** Something else went wrong. */
  report(error: unknown): void
}

export class Tenure {
  readonly lease: api.Lease
  readonly #work: Work
  readonly #controller = new AbortController()
  /** Settled when what startWork() returned is; never rejects. */
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
    const { name, code } = Object(error) as { name?: unknown; code?: unknown }
    if (error !== signal.reason && name !== 'AbortError' && !ENDED.includes(code)) this.#work.report(error)
  }

  /** Resolves when the work has ended, or its time is over; never rejects. */
  async end(reason: api.StopReason, cause: unknown): Promise<void> {
    this.#controller.abort(cause)
    const { patience } = this.#work
    const ended = Promise.all([this.#stop(reason), this.#done])
    if (patience === Number.POSITIVE_INFINITY) {
      await ended
      return
    }
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        const what = `the work under ${quote(this.lease.key)} did not end within ${patience} ms`
        this.#work.report(
          new LockTimeoutError(`${what}; its lock may go to somebody else now`, { key: this.lease.key }),
        )
        resolve()
      }, patience)
    })
    await Promise.race([ended, late])
    clearTimeout(timer)
  }

  async #stop(reason: api.StopReason): Promise<void> {
    try {
      await this.#work.stop(reason)
    } catch (error) {
      this.#work.report(error)
    }
  }
}
