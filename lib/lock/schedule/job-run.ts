// One run of a schedule's job. Knows whether a caller belongs to a run: a job that waits for its
// own end, or two jobs that wait for each other, would wait and hold their locks for ever.

import { AsyncLocalStorage } from 'node:async_hooks'
import { clearTimeout, setTimeout } from '../../util/real-timers'

/**
 * The run that the caller belongs to. The storage is enabled only while a job runs: on Node 20, it
 * makes every promise of the process slower.
 */
const within = new AsyncLocalStorage<JobRun>()
let jobs = 0

export class JobRun {
  /** Resolves when the run has ended; never rejects. */
  readonly over: Promise<void>
  /** Resolves when the run has ended, or itself waits for other runs. */
  readonly overOrWaiting: Promise<void>
  #noteWaiting: () => void = () => {}
  /** Resolves when the job has ended. The store may not remember the tick yet. */
  readonly #jobEnded: Promise<void>
  #noteJobEnd: () => void = () => {}
  #isOver = false

  /** @param work never rejects */
  constructor(work: (run: JobRun) => Promise<void>) {
    const waits = new Promise<void>((resolve) => {
      this.#noteWaiting = resolve
    })
    this.#jobEnded = new Promise<void>((resolve) => {
      this.#noteJobEnd = resolve
    })
    this.over = work(this).finally(() => {
      this.#isOver = true
    })
    this.overOrWaiting = Promise.race([this.over, waits])
  }

  /**
   * Returns the run, of any schedule, whose job has made the current call, directly or not;
   * `undefined` if it has ended.
   */
  static get current(): JobRun | undefined {
    const run = within.getStore()
    return run === undefined || run.#isOver ? undefined : run
  }

  /** Runs the job of this run. */
  async run<T>(job: () => T | PromiseLike<T>): Promise<T> {
    jobs++
    try {
      return await within.run(this, job)
    } finally {
      this.noteJobEnd()
      if (--jobs === 0) within.disable()
    }
  }

  /** Notes that the job has ended. */
  noteJobEnd(): void {
    this.#noteJobEnd()
  }

  /** Resolves when the run has ended, or `ms` milliseconds after the end of its job. */
  overWithin(ms: number): Promise<void> {
    return this.#within(this.over, ms)
  }

  /**
   * Resolves when the run has ended or itself waits for other runs, or `ms` milliseconds after
   * the end of its job.
   */
  overOrWaitingWithin(ms: number): Promise<void> {
    return this.#within(this.overOrWaiting, ms)
  }

  async #within(ended: Promise<void>, ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined
    const late = this.#jobEnded.then(
      () =>
        new Promise<void>((resolve) => {
          // The run itself keeps the process alive.
          timer = setTimeout(resolve, ms).unref()
        }),
    )
    await Promise.race([ended, late])
    clearTimeout(timer)
  }

  /** Notes that the run waits for other runs from now on. */
  waitForOthers(): void {
    this.#noteWaiting()
  }
}
