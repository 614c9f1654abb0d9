import type { ServerResponse } from 'node:http'

/** When a response is over: finished, or its connection closed, whichever is first. */
export class ResponseEnd {
  readonly #response: ServerResponse
  readonly #controller = new AbortController()
  /** Resolves then. */
  readonly over: Promise<void>

  constructor(response: ServerResponse) {
    this.#response = response
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

  /** Resolves when it is over and its handler has called `response.end()`, which may come after the close of the connection. */
  async ended(): Promise<void> {
    await this.over
    const response = this.#response
    if (response.writableEnded) return
    // Node has no event for the end of a response that nobody receives.
    await new Promise<void>((resolve) => {
      const { end } = response
      response.end = ((...args: Parameters<typeof end>) => {
        response.end = end
        resolve()
        return end.apply(response, args)
      }) as typeof end
    })
  }
}
