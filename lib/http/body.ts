// The body of a response, followed to its end.

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

/** Follows the body of a response that has one. When one of the signals aborts, the body fails with its reason. */
export function followBody(response: Response, signals: readonly AbortSignal[]): Followed {
  const reader = (response.body as ReadableStream<Uint8Array>).getReader()
  let end: () => void = () => {}
  const over = new Promise<void>((resolve) => {
    end = resolve
  })
  let isLeft = false
  /** Nobody reads on. It is over when its maker has said that it stops. */
  const leave = (reason: unknown): Promise<void> => {
    isLeft = true
    return reader.cancel(reason).finally(end)
  }
  const body = new ReadableStream<Uint8Array>(
    {
      start(controller) {
        const stops = signals.map((signal) => {
          const stop = () => {
            controller.error(signal.reason)
            // Its maker is to stop, too; if that fails, there is nobody to tell.
            leave(signal.reason).catch(() => {})
          }
          if (signal.aborted) stop()
          else signal.addEventListener('abort', stop, { once: true })
          return { signal, stop }
        })
        over.then(() => {
          for (const { signal, stop } of stops) signal.removeEventListener('abort', stop)
        })
      },
      async pull(controller) {
        try {
          const { done, value } = await reader.read()
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
