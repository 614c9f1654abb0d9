import { type Abortable, addAbortable, onAbort, removeAbortable } from '../util/abort'
import { now } from '../util/clock'
import { type MakeError, raise } from '../util/deferred'
import type { LockRequest } from './lock-request'

/**
 * The promise that a lease has yet to settle: first that of the request, later that of the release.
 */
export class Settlement {
  readonly #signal: AbortSignal | undefined
  readonly #waiter: Abortable
  #began: number | undefined
  #resolve: ((value: never) => void) | undefined
  #reject: ((make: MakeError) => void) | undefined

  /** `waiter` is called if the signal aborts before the promise of the request settles. */
  constructor({ signal, began }: LockRequest, waiter: Abortable) {
    this.#signal = signal
    this.#waiter = waiter
    this.#began = began
  }

  /** When the call began, in ms of {@link now}; `undefined` if it has no signal. */
  get began(): number | undefined {
    return this.#began
  }

  /** Returns the promise of the request, and listens to the signal until the promise settles. */
  begin<T>(): Promise<T> {
    const promise = this.promise<T>()
    const signal = this.#signal
    if (signal === undefined) return promise
    this.#began ??= now()
    try {
      addAbortable(signal, this.#waiter)
    } catch (error) {
      // The signal is an object of the user. Its mistake must not leave a lease held.
      this.reject(() => error as Error)
      this.#waiter[onAbort](signal)
    }
    return promise
  }

  /** Returns a promise that {@link resolve} or {@link reject} settles. */
  promise<T>(): Promise<T> {
    const promise = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    return promise.then(undefined, raise)
  }

  /** Does nothing if there is no pending promise. */
  resolve(value: unknown): void {
    const resolve = this.#resolve
    this.#forget()
    resolve?.(value as never)
  }

  /** Does nothing if there is no pending promise. */
  reject(make: MakeError): void {
    const reject = this.#reject
    this.#forget()
    reject?.(make)
  }

  #forget(): void {
    this.#resolve = undefined
    this.#reject = undefined
    if (this.#signal !== undefined) removeAbortable(this.#signal, this.#waiter)
  }
}
