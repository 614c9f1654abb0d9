// A small load balancer. It sends requests to one server after the other and keeps its connections.

import { randomUUID } from 'node:crypto'
import { Agent, request } from 'node:http'

/**
 * How long a connection may be idle, in ms. The servers' `keepAliveTimeout` must be longer, as with
 * any balancer.
 */
const IDLE = 200

export class Balancer {
  #agent = new Agent({ keepAlive: true, maxSockets: Infinity, timeout: IDLE })
  #next = 0
  #resendsAll
  /**
   * Identifies the servers of this balancer, in the header `x-servers`. A server of another test
   * may get the port of a server that has ended. That server answers 503, because its id differs.
   */
  servers = randomUUID()
  /** The ports of the servers. */
  ports = []
  /** The requests that were sent again, and why. */
  again = []

  /**
   * @param options `resendsAll`: sends a request again even if its kept connection was reset. A
   * balancer must not do that with a POST, because the server may have begun to serve it.
   */
  constructor({ resendsAll = false } = {}) {
    this.#resendsAll = resendsAll
  }

  /**
   * Resolves with the answer of any server to a POST of `path`: { status, body, tries }. Rejects if
   * all servers refuse the request.
   */
  async post(path, deadline = 30_000) {
    const end = Date.now() + deadline
    let last
    for (let tries = 1; Date.now() < end; tries++) {
      const port = this.ports[this.#next++ % this.ports.length]
      try {
        const answer = await this.#post(port, path)
        // The server shuts down, and another one may take the request.
        if (answer.status !== 503) return { ...answer, tries }
        last = new Error('503')
      } catch (error) {
        if (!this.#isNotTaken(error)) throw error
        last = error
      }
      this.again.push({ path, port, why: last.code ?? last.message })
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
    throw new Error(`${path} was not answered: ${last?.message}`)
  }

  #post(port, path) {
    return new Promise((resolve, reject) => {
      const headers = { 'x-servers': this.servers }
      const sent = request({ host: '127.0.0.1', port, path, method: 'POST', headers, agent: this.#agent })
      sent.on('error', (error) => reject(Object.assign(error, { isKept: sent.reusedSocket })))
      sent.on('response', (response) => {
        const parts = []
        response.on('data', (part) => parts.push(part))
        response.on('error', (error) =>
          reject(Object.assign(new Error(`cut off: ${error.message}`), { code: 'CUT_OFF' })),
        )
        response.on('end', () => resolve({ status: response.statusCode, body: Buffer.concat(parts).toString() }))
      })
      sent.end()
    })
  }

  /**
   * Returns whether the error says that the server has not taken the request: the server closed its
   * port before it accepted the connection.
   */
  #isNotTaken({ code, isKept }) {
    return code === 'ECONNREFUSED' || (code === 'ECONNRESET' && (!isKept || this.#resendsAll))
  }

  close() {
    this.#agent.destroy()
  }
}
