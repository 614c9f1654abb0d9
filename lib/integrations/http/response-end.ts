import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import { clearTimeout, setTimeout } from '../../util/real-timers'
import { onConnectionClose } from './connection'

/**
 * The time between two checks whether the stream of a response is closed, in ms. If this is larger,
 * the lock of a stream that closed without an event is free later; if it is smaller, slow responses
 * over HTTP/2 take more processor time.
 */
const CHECK_EVERY = 1_000

/** Tells when a response is over: it is finished, or its connection has closed. */
export class ResponseEnd {
  readonly #controller = new AbortController()
  readonly #response: ServerResponse
  // On platforms without sockets, adapters give a request no socket, or an object without events.
  readonly #socket: Partial<Socket> | undefined
  #end = (): void => {}
  /** Resolves when the response is over. */
  readonly over: Promise<void>

  constructor(request: IncomingMessage, response: ServerResponse) {
    const socket: Partial<Socket> | undefined = request.socket
    this.#response = response
    this.#socket = socket
    this.over = new Promise((resolve) => {
      let forget = () => {}
      let timer: NodeJS.Timeout | undefined
      const end = () => {
        response.off('finish', end)
        response.off('close', end)
        forget()
        clearTimeout(timer)
        this.#controller.abort()
        resolve()
      }
      this.#end = end
      // For HEAD over HTTP/2, `writableFinished` is true from the start.
      const isFinished = response.writableEnded && response.writableFinished
      if (isFinished || this.#isClosed) {
        end()
        return
      }
      response.on('finish', end)
      response.on('close', end)
      // A response without a socket gets no event from Node: a pipelined response that has to wait,
      // or the response of an upgrade.
      if (typeof socket?.once === 'function') forget = onConnectionClose(socket as Socket, end)
      // If a client resets many streams of HTTP/2 at once, some close without an event.
      const { stream } = response as { stream?: Partial<ServerHttp2Stream> }
      if (stream === undefined || request.httpVersionMajor !== 2) return
      const check = () => {
        if (stream.closed || stream.destroyed) end()
        else timer = setTimeout(check, CHECK_EVERY).unref()
      }
      check()
    })
  }

  /** Aborts when the response is over. */
  get signal(): AbortSignal {
    // Node emits 'close' only some time after a connection was destroyed.
    if (!this.#controller.signal.aborted && this.#isClosed) this.#end()
    return this.#controller.signal
  }

  get #isClosed(): boolean {
    return this.#response.destroyed || this.#response.closed || this.#socket?.destroyed === true
  }
}
