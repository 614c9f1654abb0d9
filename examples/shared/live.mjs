// Keeps pages up to date by Server-Sent Events. Reads the state once for all pages, and only while
// there are any.

import { setTimeout as sleep } from 'node:timers/promises'
import { visible } from './visible.mjs'

const EVERY = 250
/**
 * After how long an unchanged state is sent again, in ms. If AGAIN, LIMIT and EVERY together are
 * longer than the silence that public/follow.mjs allows, pages say that this server is gone. If
 * this is shorter, the server sends more.
 */
const AGAIN = 2_000
/**
 * How long reading the state may take, in ms. After that, pages get an error. If this is longer,
 * pages show an old state for longer; if it is shorter, a slow store seems to be gone.
 */
const LIMIT = 2_000

/** The headers of the endless stream of states. */
export const EVENT_STREAM = { 'content-type': 'text/event-stream', 'cache-control': 'no-store' }

export class Live {
  #look
  #pages = new Set()
  #latest = ''
  #looking
  #running = false
  #closed = false
  /** The last error, until the store answers again. */
  #trouble

  /** @param {() => Promise<object>} look reads the state for the pages */
  constructor(look) {
    this.#look = look
  }

  /**
   * Calls `page.write(event)` with each state from now on, and `page.end()` when there are no more.
   * Returns a function that stops this.
   */
  follow(page) {
    if (this.#closed) {
      page.end()
      return () => {}
    }
    if (this.#latest) page.write(this.#latest)
    this.#pages.add(page)
    if (!this.#running) this.#run()
    return () => this.#pages.delete(page)
  }

  async #run() {
    this.#running = true
    let told = 0
    while (this.#pages.size > 0) {
      const state = await this.#see()
      const event = `data: ${JSON.stringify(state)}\n\n`
      const now = performance.now()
      if (event !== this.#latest || now - told > AGAIN) {
        for (const page of this.#pages) page.write(event)
        told = now
      }
      this.#latest = event
      await sleep(EVERY)
    }
    this.#latest = ''
    this.#running = false
  }

  /** Returns the state, or a harmless message for the page. Logs each error once. */
  async #see() {
    try {
      const state = await this.#lookInTime()
      this.#trouble = undefined
      return state
    } catch (error) {
      if (this.#trouble?.message !== error.message) this.#trouble = { message: error.message, ...visible(error) }
      return { error: this.#trouble.error }
    }
  }

  /** Returns the state, or rejects after LIMIT. While a read hangs, no other one begins. */
  async #lookInTime() {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined
    })
    const timer = new AbortController()
    const late = sleep(LIMIT, undefined, { signal: timer.signal }).then(
      () => {
        throw new Error(`no state of the locks and jobs within ${LIMIT} ms: does the store answer?`)
      },
      () => {},
    )
    return Promise.race([this.#looking, late]).finally(() => timer.abort())
  }

  /** Ends all streams, so that the server can close. Pages connect again automatically. */
  close() {
    this.#closed = true
    for (const page of this.#pages) page.end()
    this.#pages.clear()
  }
}
