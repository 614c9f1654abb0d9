import type * as api from '../../index'

/** The loss of one lease. Its signal and its events have the same error object. */
export class LossSignal {
  #controller: AbortController | undefined
  #error: api.LockLostError | undefined

  /** Whether the user has asked for the signal. */
  get isWatched(): boolean {
    return this.#controller !== undefined
  }

  /** Returns the error. Calls `make` if there is none yet. */
  error(make: () => api.LockLostError): api.LockLostError {
    this.#error ??= make()
    return this.#error
  }

  /** Returns the signal. The first call aborts the signal if `lossNow` returns an error. */
  signal(lossNow: () => api.LockLostError | undefined): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      const error = lossNow()
      if (error !== undefined) this.#controller.abort(error)
    }
    return this.#controller.signal
  }

  /** Aborts the signal, if the user has asked for it. */
  abort(error: api.LockLostError): void {
    this.#controller?.abort(error)
  }
}
