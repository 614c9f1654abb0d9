// A pause between two tries. It ends early when the next try would fail, or the call is aborted.

import { abortedError } from '../diagnostics/errors'
import { type Abortable, addAbortable, onAbort, removeAbortable } from '../util/abort'
import { defer, type MakeError, raise } from '../util/deferred'

/** Functions that end pauses: a client calls them when it closes or its store goes away. */
export type Pauses = Set<() => void>

export class Pause implements Abortable {
  readonly #key: string
  readonly #signal: AbortSignal | undefined
  readonly #began: number
  /** The sets of functions that end pauses. This pause adds its own function to each. */
  readonly #pauses: readonly Pauses[]
  readonly #deferred = defer<void>()
  #timer: NodeJS.Timeout | undefined

  /** `began` is when the call began, in ms of `now()`. */
  constructor(key: string, signal: AbortSignal | undefined, began: number, pauses: readonly Pauses[]) {
    this.#key = key
    this.#signal = signal
    this.#began = began
    this.#pauses = pauses
  }

  /**
   * Resolves after `ms`, or as soon as the client is closed or the store goes away. The next try
   * then rejects.
   */
  over(ms: number): Promise<void> {
    if (this.#signal?.aborted) throw abortedError(this.#key, this.#signal.reason, this.#began)
    if (this.#signal !== undefined) addAbortable(this.#signal, this)
    for (const pauses of this.#pauses) pauses.add(this.#end)
    // The timer keeps the process alive, as every pending call does.
    this.#timer = setTimeout(this.#end, ms)
    return this.#deferred.promise.catch(raise)
  }

  readonly #end = (): void => {
    this.#forget()
    this.#deferred.resolve()
  };

  [onAbort](signal: AbortSignal): void {
    this.#forget()
    const make: MakeError = () => abortedError(this.#key, signal.reason, this.#began)
    this.#deferred.reject(make)
  }

  #forget(): void {
    clearTimeout(this.#timer)
    for (const pauses of this.#pauses) pauses.delete(this.#end)
    if (this.#signal !== undefined) removeAbortable(this.#signal, this)
  }
}
