// The body of a response, followed to its end.

import * as timers from 'node:timers'
import type * as api from '../../index'
import { isLost, lossOf, ttlOf } from './loss'

// Taken when this is loaded: under a fake clock that stands still, a quiet source would keep its locks for ever.
const { clearTimeout, setTimeout } = timers

/** By its looks: polyfills have classes of their own. */
export function isResponse(given: unknown): given is Response {
  const { status, headers, body } = Object(given) as Partial<Response>
  return typeof status === 'number' && typeof headers?.get === 'function' && body !== undefined
}

interface Followed {
  /** The same response, to be handed out. */
  readonly response: Response
  /** Resolves when its body was read to the end, cancelled, or failed. */
  readonly over: Promise<void>
}

/**
 * How many ready chunks are thrown away to find out whether the source makes another one. If this
 * is smaller, the work of a source with a longer queue is overlooked. If it is larger, a source
 * that is always ready makes more chunks that nobody reads.
 */
const MOST_READY = 64

type Reader = ReadableStreamDefaultReader<Uint8Array>

/**
 * Follows the body of a response that has one. If the request aborts or a lease is lost, the body
 * fails with the reason of the signal, and its source is cancelled. If the request aborts or no
 * lock is left, that happens at once. Otherwise the source first finishes the chunk that it is
 * making, because that is work under the remaining locks. It has the ttl of the leases for that: a
 * source that sends events may never make another chunk.
 */
export function followBody(response: Response, held: api.Lease | api.MultiLease, request: AbortSignal): Followed {
  const reader: Reader = (response.body as ReadableStream<Uint8Array>).getReader()
  let end: () => void = () => {}
  const over = new Promise<void>((resolve) => {
    end = resolve
  })
  let isLeft = false
  let left: Promise<void> | undefined
  let reading: ReturnType<Reader['read']> | undefined
  /** Cancels the source. The body is over when `cancel()` of the source has settled. */
  const leave = (reason: unknown): Promise<void> => {
    isLeft = true
    // A second cancel() would resolve before the maker has answered the first.
    left ??= reader.cancel(reason).finally(end)
    return left
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        // Only the first reason counts: a reader often aborts the request because the body failed.
        // Such an abort looks like one of the client, so neither shortens the wait for a chunk.
        const followed = new AbortController()
        const stop = ({ reason }: AbortSignal) => {
          followed.abort()
          isLeft = true
          controller.error(reason)
          // If cancel() of the source fails, there is nobody to tell.
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
    // Nothing is read ahead of whoever reads.
    { highWaterMark: 0 },
  )
  return { response: withBody(response, body), over }
}

/**
 * Calls `done` when the source has made the chunk that it is making, and in the same turn: in the
 * next one, the source would begin another chunk. Streams do not tell whether their source is at
 * work, but a read that has to wait does. It makes an idle source begin a chunk.
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
    // A read of a ready chunk resolves before this microtask.
    Promise.resolve().then(() => {
      hasWaited = true
    })
  }
  next()
}

/** The same response without the body that it has, whose maker is told that nobody will read it. */
export function dropBody(response: Response): Response {
  const reason = new DOMException('This response is sent without its body', 'AbortError')
  // What its maker says to that changes nothing, nor that somebody reads it already.
  // That of another library's Response may be a stream of Node's, which has none of this.
  response.body?.cancel?.(reason)?.catch(() => {})
  return withBody(response, null)
}

function withBody(response: Response, body: ReadableStream<Uint8Array> | null): Response {
  // Of its own class, which may be a polyfill's: servers look for that.
  const Same = response.constructor as typeof Response
  return new Same(body, response)
}
