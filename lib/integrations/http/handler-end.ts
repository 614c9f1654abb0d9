import type { ServerResponse } from 'node:http'

/**
 * Resolves when a handler calls `end()` or `destroy()` of the response, whether or not the client
 * is still connected. Node emits no event for these calls, and calls neither function when a
 * connection closes.
 */
export function handlerEnd(response: ServerResponse): Promise<void> {
  if (response.writableEnded) return Promise.resolve()
  return new Promise((resolve) => {
    // Leave the functions wrapped: restoring them would remove the wrapper of a later middleware.
    for (const name of ['end', 'destroy'] as const) {
      const own = response[name] as (...args: unknown[]) => ServerResponse
      response[name] = function (this: ServerResponse, ...args: unknown[]) {
        resolve()
        return own.apply(this, args)
      }
    }
  })
}
