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
 * How many chunks that are ready are thrown away to find out whether the source makes another one. Fewer would miss that of a
 * source with a longer queue; more would make a source that is always ready make more for nobody.
 */
const MOST_READY = 64

type Reader = ReadableStreamDefaultReader<Uint8Array>

/**
 * Follows the body of a response that has one. When the request aborts, or a lease is lost, the body fails with the reason of
 * that. Its source is then cancelled: at once if the request aborted or nothing is held any more, otherwise when it has made the
 * chunk that it is making, because that is work under the locks that are left. That wait ends after the ttl of the leases: a
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
  /** Nobody reads on. It is over when its maker has said that it stops. */
  const leave = (reason: unknown): Promise<void> => {
    isLeft = true
    // A second cancel() would resolve before the maker has answered the first.
    left ??= reader.cancel(reason).finally(end)
    return left
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        // Only the first reason counts: a body that fails often makes its reader abort the request, too. That abort can't be told
        // from one of the client's own, so it does not cut the wait for a chunk short.
        const followed = new AbortController()
        const stop = ({ reason }: AbortSignal) => {
          followed.abort()
          isLeft = true
          controller.error(reason)
          // Its maker is to stop, too; if that fails, there is nobody to tell.
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
 * Calls `done` when the source has made the chunk that it is making, in the same turn: after that it would begin the next one.
 * Streams do not tell whether their source is at work. A read that has to wait does, but it makes an idle source begin a chunk.
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
    // A chunk that was ready is there before this.
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
