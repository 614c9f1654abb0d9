import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { onConnectionClose } from './connection'

/** When a response is over: finished, or its connection closed, whichever is first. */
export class ResponseEnd {
  readonly #controller = new AbortController()
  /** Resolves then. */
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
      if (response.writableFinished || response.destroyed || response.closed || socket?.destroyed) {
        end()
        return
      }
      response.on('finish', end)
      response.on('close', end)
      // Node emits no event for a response without a socket: a pipelined response that has to wait,
      // or that of an upgrade.
      if (typeof socket?.once === 'function') forget = onConnectionClose(socket as Socket, end)
    })
  }

  /** Aborts then. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }
}
