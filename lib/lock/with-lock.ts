// Runs sections: acquires the lock, calls the user's code, and releases the lock. For promises and
// for callbacks.

import { LockLostError } from '../diagnostics/errors'
import { callListener, throwUncaught } from '../util/uncaught'
import { endSection } from './lease-methods'
import type { LeaseOwner } from './lease-owner'
import type { Sections } from './sections'

/** A lease, or several leases. */
interface Releasable {
  assertHeld(): void
  release(): Promise<boolean>
  [endSection](): this
}

type SectionContext = Pick<LeaseOwner, 'failed'> & { readonly sections: Sections }

export type SectionFunction<L, T> = (lease: L) => T | PromiseLike<T>

/** Called by the user when the work is done; see `Done` in types/options.d.ts. */
type Done = (first?: unknown, second?: unknown) => void

export type SectionCallback<L> = (error: unknown, lease: L | undefined, done: Done) => unknown

/** Runs `work` under the lease that `acquire` gets, and releases the lease. */
export async function runSection<L extends Releasable, T>(
  context: SectionContext,
  acquire: () => Promise<L>,
  work: SectionFunction<L, T>,
): Promise<T> {
  // Keeps the process alive until this promise settles, whatever the work waits for.
  context.sections.begin()
  try {
    return await runUnder(context, await acquire(), work)
  } finally {
    context.sections.end()
  }
}

async function runUnder<L extends Releasable, T>(
  context: SectionContext,
  lease: L,
  work: SectionFunction<L, T>,
): Promise<T> {
  let result: T
  try {
    result = await work(lease)
  } catch (error) {
    await lease[endSection]()
      .release()
      .catch((failure) => context.failed(failure))
    throw error
  }
  let given: boolean
  try {
    given = await lease[endSection]().release()
  } catch (failure) {
    // The work is done, and the lock ends by its ttl.
    context.failed(failure)
    return result
  }
  if (!given) assertNotLost(lease)
  return result
}

/** Calls `callback` with the lease that `acquire` gets. The callback decides when to release it. */
export function runCallbackSection<L extends Releasable>(
  context: SectionContext,
  acquire: () => Promise<L>,
  callback: SectionCallback<L>,
): void {
  const { sections } = context
  sections.begin()
  acquire().then(
    (lease) => {
      const section = new CallbackSection(context, () => release(lease).finally(() => sections.end()))
      section.run(() => callback(null, lease, section.done))
    },
    (error) => {
      sections.end()
      const section = new CallbackSection(context, () => Promise.resolve())
      section.run(() => callback(error, undefined, section.done))
    },
  )
}

/** Rejects if the release failed, or the lease was lost before. */
async function release(lease: Releasable): Promise<void> {
  if (!(await lease[endSection]().release())) assertNotLost(lease)
}

/** Throws if the lease was lost. Does not throw if the work has released or detached it. */
export function assertNotLost(lease: Pick<Releasable, 'assertHeld'>): void {
  try {
    lease.assertHeld()
  } catch (error) {
    if (error instanceof LockLostError) throw error
  }
}

/** One run of a callback, until the user calls `done`. */
class CallbackSection {
  readonly #context: SectionContext
  readonly #end: () => Promise<void>
  #over: Promise<void> | undefined

  constructor(context: SectionContext, end: () => Promise<void>) {
    this.#context = context
    this.#end = end
  }

  run(callback: () => unknown): void {
    try {
      const result = callback() as PromiseLike<unknown> | undefined
      // An async callback calls done() like any other, but rejects where others throw.
      if (typeof result?.then === 'function') result.then(undefined, (error) => this.#fail(error))
    } catch (error) {
      this.#fail(error)
    }
  }

  #fail(error: unknown): void {
    this.done()
    // Release the lock before the error becomes an uncaught exception.
    this.#over?.then(() => throwUncaught(error))
  }

  readonly done: Done = (first, second) => {
    if (this.#over !== undefined) return
    const [error, callback] = typeof first === 'function' && second === undefined ? [undefined, first] : [first, second]
    this.#over = this.#end().then(
      () => this.#tell(error, callback),
      (failure) => {
        // Report the first failure.
        if (isError(error)) this.#context.failed(failure)
        this.#tell(isError(error) ? error : failure, callback)
      },
    )
  }

  #tell(error: unknown, callback: unknown): void {
    if (typeof callback === 'function') callListener(() => callback(error ?? null))
    else if (isError(error)) this.#context.failed(error)
  }
}

function isError(given: unknown): boolean {
  return given !== undefined && given !== null
}
