import type { ServerResponse } from 'node:http'

/**
 * Resolves when a handler calls `end()` or `destroy()` of the response, with or without a client that receives it. Node has no
 * event for that, and calls neither itself when a connection closes.
 */
export function handlerEnd(response: ServerResponse): Promise<void> {
  if (response.writableEnded) return Promise.resolve()
  return new Promise((resolve) => {
    // They stay wrapped: what another middleware puts around them later must not be undone.
    for (const name of ['end', 'destroy'] as const) {
      const own = response[name] as (...args: unknown[]) => ServerResponse
      response[name] = function (this: ServerResponse, ...args: unknown[]) {
        resolve()
        return own.apply(this, args)
      }
    }
  })
}
