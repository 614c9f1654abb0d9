// What runs while a lock is held: acquired before, released after, in either style.

import { LockLostError } from './errors'
import type { Owner } from './lease'
import { guarded, rethrow } from './rethrow'
import type { Sections } from './sections'

/** A lease, or several. */
interface Holding {
  assertHeld(): void
  release(): Promise<boolean>
}

type Reporter = Pick<Owner, 'failed'> & { readonly sections: Sections }

export type Work<L, T> = (lease: L) => T | PromiseLike<T>

/** As the user of the library calls it; see `Done` in index.d.ts. */
type Done = (first?: unknown, second?: unknown) => void

export type Callback<L> = (error: unknown, lease: L | undefined, done: Done) => unknown

/** Runs `work` under the lease that `acquire` gets, and releases the lease. */
export async function runWith<L extends Holding, T>(
  reporter: Reporter,
  acquire: () => Promise<L>,
  work: Work<L, T>,
): Promise<T> {
  // Keeps the process alive until this promise settles, whatever the work waits for.
  reporter.sections.begin()
  try {
    return await runUnder(reporter, await acquire(), work)
  } finally {
    reporter.sections.end()
  }
}

async function runUnder<L extends Holding, T>(reporter: Reporter, lease: L, work: Work<L, T>): Promise<T> {
  let result: T
  try {
    result = await work(lease)
  } catch (error) {
    await lease.release().catch((failure) => reporter.failed(failure))
    throw error
  }
  let given: boolean
  try {
    given = await lease.release()
  } catch (failure) {
    // The work is done, and the lock ends by its ttl.
    reporter.failed(failure)
    return result
  }
  if (!given) assertNotLost(lease)
  return result
}

/** Hands the lease that `acquire` gets to `callback`, which decides when to release it. */
export function callWith<L extends Holding>(
  reporter: Reporter,
  acquire: () => Promise<L>,
  callback: Callback<L>,
): void {
  const { sections } = reporter
  sections.begin()
  acquire().then(
    (lease) => {
      const section = new Section(reporter, () => giveBack(lease).finally(() => sections.end()))
      section.run(() => callback(null, lease, section.done))
    },
    (error) => {
      sections.end()
      const section = new Section(reporter, () => Promise.resolve())
      section.run(() => callback(error, undefined, section.done))
    },
  )
}

/** Rejects if the release failed, or the lease was lost before. */
async function giveBack(lease: Holding): Promise<void> {
  if (!(await lease.release())) assertNotLost(lease)
}

/** Not held is also what was detached, or released by the work itself; nothing is wrong with that. */
export function assertNotLost(lease: Holding): void {
  try {
    lease.assertHeld()
  } catch (error) {
    if (error instanceof LockLostError) throw error
  }
}

/** One run of a callback, until it says that it is done. */
class Section {
  readonly #reporter: Reporter
  readonly #end: () => Promise<void>
  #over: Promise<void> | undefined

  constructor(reporter: Reporter, end: () => Promise<void>) {
    this.#reporter = reporter
    this.#end = end
  }

  run(callback: () => unknown): void {
    try {
      const result = callback() as PromiseLike<unknown> | undefined
      // One that is async says that it is done like any other, but what it throws is a rejection.
      if (typeof result?.then === 'function') result.then(undefined, (error) => this.#fail(error))
    } catch (error) {
      this.#fail(error)
    }
  }

  #fail(error: unknown): void {
    this.done()
    // Thrown where Node looks for it, but not before others may have the lock.
    this.#over?.then(() => rethrow(error))
  }

  readonly done: Done = (first, second) => {
    if (this.#over !== undefined) return
    const [error, callback] = typeof first === 'function' && second === undefined ? [undefined, first] : [first, second]
    this.#over = this.#end().then(
      () => this.#tell(error, callback),
      (failure) => {
        // What failed first is what is told.
        if (isError(error)) this.#reporter.failed(failure)
        this.#tell(isError(error) ? error : failure, callback)
      },
    )
  }

  #tell(error: unknown, callback: unknown): void {
    if (typeof callback === 'function') guarded(() => callback(error ?? null))
    else if (isError(error)) this.#reporter.failed(error)
  }
}

function isError(given: unknown): boolean {
  return given !== undefined && given !== null
}
