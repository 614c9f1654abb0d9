// Keeps pages up to date by Server-Sent Events: one look at the state for all of them, and only while there are any.

import { setTimeout as sleep } from 'node:timers/promises'

const EVERY = 250

export class Live {
  #look
  #pages = new Set()
  #latest = ''
  #running = false
  #closed = false

  /** @param {() => Promise<object>} look what pages are to be shown */
  constructor(look) {
    this.#look = look
  }

  /** Express handler: an endless stream of states. */
  handle = (request, response) => {
    if (this.#closed) return response.sendStatus(503)
    response.set({ 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    response.flushHeaders()
    if (this.#latest) response.write(this.#latest)
    this.#pages.add(response)
    request.on('close', () => this.#pages.delete(response))
    if (!this.#running) this.#run()
  }

  async #run() {
    this.#running = true
    while (this.#pages.size > 0) {
      const state = await this.#look().catch((error) => ({ error: error.message }))
      const event = `data: ${JSON.stringify(state)}\n\n`
      if (event !== this.#latest) for (const page of this.#pages) page.write(event)
      this.#latest = event
      await sleep(EVERY)
    }
    this.#latest = ''
    this.#running = false
  }

  /** Ends all streams, so that the server can close. Pages connect again by themselves. */
  close() {
    this.#closed = true
    for (const page of this.#pages) page.end()
    this.#pages.clear()
  }
}
