// What an orchestrator asks: is the process alive, and should it get requests?

import { Router } from 'express'

export class Health {
  #isReady = false

  /** Says that the server listens. */
  begin(): void {
    this.#isReady = true
  }

  /** Says that the server shuts down. */
  end(): void {
    this.#isReady = false
  }

  routes(): Router {
    const health = Router()
    // If the event loop hangs, this is not answered: then the orchestrator may restart the process.
    health.get('/live', (_request, response) => {
      response.json({ alive: true })
    })
    // Not whether Redis answers: if it is away, it is so for all servers, and none would be left to say it.
    health.get('/ready', (_request, response) => {
      response.status(this.#isReady ? 200 : 503).json({ ready: this.#isReady })
    })
    return health
  }
}
