// The body of a polyfill's Response, which may be a stream of Node.

import { finished, type Readable } from 'node:stream'

/** Returns whether `body` is a stream of Node, which has `destroy()` instead of `cancel()`. */
export function isNodeStream(body: unknown): body is Readable {
  const { destroy, once } = Object(body) as Partial<Readable>
  return typeof destroy === 'function' && typeof once === 'function'
}

/** Destroys the stream. Resolves when it has closed, whether or not it has failed. */
export function destroyed(body: Readable): Promise<void> {
  return new Promise((resolve) => {
    // Keep the listeners of finished(): without them, a late error of the stream would end the
    // process.
    finished(body, () => resolve())
    body.destroy()
  })
}
