import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onConnectionClose } from './connection'

/** Tells when a response is over: it is finished, or its connection has closed. */
export class ResponseEnd {
  readonly #controller = new AbortController()
  /** Resolves when the response is over. */
  readonly over: Promise<void>

  constructor(request: IncomingMessage, response: ServerResponse) {
    // On platforms without sockets, adapters give a request no socket, or an object without events.
    const socket: Partial<Socket> | undefined = request.socket
    this.over = new Promise((resolve) => {
      let forget = () => {}
      const end = () => {
        response.off('finish', end)
        response.off('close', end)
        forget()
        this.#controller.abort()
        resolve()
      }
      // For HEAD over HTTP/2, `writableFinished` is true from the start.
      const isFinished = response.writableEnded && response.writableFinished
      if (isFinished || response.destroyed || response.closed || socket?.destroyed) {
        end()
        return
      }
      response.on('finish', end)
      response.on('close', end)
      // A response without a socket gets no event from Node: a pipelined response that has to wait,
      // or the response of an upgrade.
      if (typeof socket?.once === 'function') forget = onConnectionClose(socket as Socket, end)
    })
  }

  /** Aborts when the response is over. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }
}
