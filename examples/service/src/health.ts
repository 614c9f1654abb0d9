// Answers an orchestrator: is the process alive, and should it get requests?

import { Router } from 'express'

export class Health {
  #isReady = false

  /** Notes that the server listens. */
  begin(): void {
    this.#isReady = true
  }

  /** Notes that the server shuts down. */
  end(): void {
    this.#isReady = false
  }

  routes(): Router {
    const health = Router()
    // If the event loop hangs, there is no answer, and the orchestrator restarts the process.
    health.get('/live', (_request, response) => {
      response.json({ alive: true })
    })
    // This does not ask Redis. If Redis is down, it is down for all servers. If none were ready,
    // visitors would get no answer at all instead of a 503.
    health.get('/ready', (_request, response) => {
      response.status(this.#isReady ? 200 : 503).json({ ready: this.#isReady })
    })
    return health
  }
}
