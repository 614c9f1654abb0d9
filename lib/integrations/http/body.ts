// Follows the body of a response to its end.

import type * as api from '../../../index'
import { clearTimeout, setTimeout } from '../../util/real-timers'
import { isLost, lossOf, ttlOf } from './loss'
import { destroyed, isNodeStream } from './node-body'

/** Returns whether `given` looks like a Response: polyfills have classes of their own. */
export function isResponse(given: unknown): given is Response {
  const { status, headers, body } = Object(given) as Partial<Response>
  return typeof status === 'number' && typeof headers?.get === 'function' && body !== undefined
}

interface FollowedResponse {
  /** The response to hand out. */
  readonly response: Response
  /**
   * Resolves when the body was read to its end or has failed, or when the `cancel()` of its source
   * has settled.
   */
  readonly over: Promise<void>
}

/**
 * The most ready chunks to throw away when finding out whether the source makes another one. If
 * this is smaller, the work of a source with a longer queue is overlooked. If it is larger, a
 * source that is always ready makes more chunks that are never read.
 */
const MOST_READY = 64

type Reader = ReadableStreamDefaultReader<Uint8Array>

/**
 * Follows the body of a response, which must have one. If the request aborts or a lease is lost,
 * the body fails with the reason of the signal, and its source is cancelled. The source is
 * cancelled at once if the request aborts or no lock is left. Otherwise the source may first finish
 * the chunk that it is making, because that is work under the remaining locks. If that takes longer
 * than the ttl of the leases, the source is cancelled: a source of events may never make another
 * chunk.
 */
export function followBody(
  response: Response,
  held: api.Lease | api.MultiLease,
  request: AbortSignal,
): FollowedResponse {
  const reader: Reader = (response.body as ReadableStream<Uint8Array>).getReader()
  let end: () => void = () => {}
  const over = new Promise<void>((resolve) => {
    end = resolve
  })
  let isLeft = false
  let left: Promise<void> | undefined
  let reading: ReturnType<Reader['read']> | undefined
  /** Cancels the source. The body is over when the `cancel()` of the source has settled. */
  const leave = (reason: unknown): Promise<void> => {
    isLeft = true
    // Call cancel() once: a second call would resolve before the first one has settled.
    left ??= reader.cancel(reason).finally(end)
    return left
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        // Only the first reason counts. When the body has failed, a server often aborts the
        // request. Such an abort looks like that of a client, so no abort shortens the wait for a
        // chunk.
        const followed = new AbortController()
        const stop = ({ reason }: AbortSignal) => {
          followed.abort()
          isLeft = true
          controller.error(reason)
          // Ignore an error of the source's cancel(): no caller waits for it.
          const cancel = () => void leave(reason).catch(() => {})
          if (request.aborted || isLost(held)) return cancel()
          const timer = setTimeout(cancel, ttlOf(held)).unref()
          over.then(() => clearTimeout(timer))
          afterChunk(reader, reading, cancel)
          lossOf(held).then(cancel)
        }
        for (const signal of [held.signal, request]) {
          if (followed.signal.aborted) break
          if (signal.aborted) stop(signal)
          else signal.addEventListener('abort', () => stop(signal), { once: true, signal: followed.signal })
        }
        over.then(() => followed.abort())
      },
      async pull(controller) {
        try {
          reading = reader.read()
          const { done, value } = await reading
          reading = undefined
          if (isLeft) return
          if (!done) {
            controller.enqueue(value)
            return
          }
          controller.close()
        } catch (error) {
          controller.error(error)
        }
        if (!isLeft) end()
      },
      cancel: leave,
    },
    // Read nothing before the reader asks for it.
    { highWaterMark: 0 },
  )
  return { response: withBody(response, body), over }
}

/**
 * Calls `done` in the turn in which the source finishes the chunk that it is making: in the next
 * turn, it would begin another one. A stream does not tell whether its source is at work, but a
 * read that has to wait shows it. Such a read makes an idle source begin a chunk.
 */
function afterChunk(reader: Reader, reading: Promise<unknown> | undefined, done: () => void): void {
  if (reading !== undefined) {
    reading.then(done, done)
    return
  }
  let left = MOST_READY
  const next = (): void => {
    let hasWaited = false
    reader.read().then((chunk) => (hasWaited || chunk.done || left-- === 0 ? done() : next()), done)
    // The read of a ready chunk resolves before this microtask.
    Promise.resolve().then(() => {
      hasWaited = true
    })
  }
  next()
}

/**
 * Returns the response without its body, and cancels the source of the body. The body is over when
 * the `cancel()` of the source has settled.
 */
export function dropBody(response: Response): FollowedResponse {
  return { response: withBody(response, null), over: cancelBody(response.body) }
}

/** Cancels the source of `body`. Resolves when its work has stopped; never rejects. */
async function cancelBody(body: ReadableStream | null): Promise<void> {
  if (isNodeStream(body)) return destroyed(body)
  const reason = new DOMException('This response is sent without its body', 'AbortError')
  // Ignore an error of the source, and that of a body that is already being read.
  await body?.cancel(reason).catch(() => {})
}

function withBody(response: Response, body: ReadableStream<Uint8Array> | null): Response {
  // Use the response's own class, which may be a polyfill's: servers look for that.
  const Same = response.constructor as typeof Response
  return new Same(body, response)
}
