// One turn of a schedule, and whether the caller is a part of one: a job that waits for its own end would wait for ever, and keep its
// lock for as long; so would two that wait for each other's.

import { AsyncLocalStorage } from 'node:async_hooks'

/** In which job the caller is. On Node 20 it makes every promise of the process slower, and so every lock: only while a job runs. */
const within = new AsyncLocalStorage<Turn>()
let jobs = 0

export class Turn {
  /** Resolves when it has ended; never rejects. */
  readonly over: Promise<void>
  /** Resolves when it has ended, or waits for other turns itself. */
  readonly left: Promise<void>
  #leave: () => void = () => {}
  #isOver = false

  /** @param work never rejects */
  constructor(work: (turn: Turn) => Promise<void>) {
    const waits = new Promise<void>((resolve) => {
      this.#leave = resolve
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
      if (--jobs === 0) within.disable()
    }
  }

  /** It waits for other turns from now on. */
  leave(): void {
    this.#leave()
  }
}
