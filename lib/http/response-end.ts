import type { ServerResponse } from 'node:http'

/** When a response is over: finished, or its connection closed, whichever is first. */
export class ResponseEnd {
  readonly #controller = new AbortController()
  /** Resolves then. */
  readonly over: Promise<void>

  constructor(response: ServerResponse) {
    this.over = new Promise((resolve) => {
      const end = () => {
        response.off('finish', end)
        response.off('close', end)
        this.#controller.abort()
        resolve()
      }
      if (response.writableFinished || response.destroyed || response.closed) {
        end()
        return
      }
      response.on('finish', end)
      response.on('close', end)
    })
  }

  /** Aborts then. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }
}
