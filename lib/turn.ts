// One turn of a schedule, and whether the caller is a part of one: a job that waits for its own end would wait for ever, and keep its
// lock for as long; so would two that wait for each other's.

import { AsyncLocalStorage } from 'node:async_hooks'
import * as timers from 'node:timers'

// Read them at load time: with a fake clock that stands still, stop() would wait for the store.
const { clearTimeout, setTimeout } = timers

/** In which job the caller is. On Node 20 it makes every promise of the process slower, and so every lock: only while a job runs. */
const within = new AsyncLocalStorage<Turn>()
let jobs = 0

export class Turn {
  /** Resolves when it has ended; never rejects. */
  readonly over: Promise<void>
  /** Resolves when it has ended, or waits for other turns itself. */
  readonly left: Promise<void>
  #leave: () => void = () => {}
  /** Resolves when its job has ended, although the store may not have been told yet. */
  readonly #worked: Promise<void>
  #end: () => void = () => {}
  #isOver = false

  /** @param work never rejects */
  constructor(work: (turn: Turn) => Promise<void>) {
    const waits = new Promise<void>((resolve) => {
      this.#leave = resolve
    })
    this.#worked = new Promise<void>((resolve) => {
      this.#end = resolve
    })
    this.over = work(this).finally(() => {
      this.#isOver = true
    })
    this.left = Promise.race([this.over, waits])
  }

  /** Whose job has called, itself or by what it has begun, if it is still under way; of whatever schedule it is. */
  static get current(): Turn | undefined {
    const turn = within.getStore()
    return turn === undefined || turn.#isOver ? undefined : turn
  }

  /** Runs its job. */
  async run<T>(job: () => T | PromiseLike<T>): Promise<T> {
    jobs++
    try {
      return await within.run(this, job)
    } finally {
      this.worked()
      if (--jobs === 0) within.disable()
    }
  }

  /** Notes that its job has ended. */
  worked(): void {
    this.#end()
  }

  /** Resolves when it has ended, or `ms` after the end of its job. */
  overWithin(ms: number): Promise<void> {
    return this.#within(this.over, ms)
  }

  /** Resolves when it has ended or waits for other turns itself, or `ms` after the end of its job. */
  leftWithin(ms: number): Promise<void> {
    return this.#within(this.left, ms)
  }

  async #within(ended: Promise<void>, ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = this.#worked.then(
      () =>
        new Promise<void>((resolve) => {
          // The turn itself keeps the process alive.
          timer = setTimeout(resolve, ms).unref()
        }),
    )
    await Promise.race([ended, late])
    clearTimeout(timer)
  }

  /** It waits for other turns from now on. */
  leave(): void {
    this.#leave()
  }
}
