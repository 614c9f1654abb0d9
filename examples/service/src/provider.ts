// Imitates a payment provider.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Log } from './log.js'

export class Provider {
  readonly #ms: number
  readonly #log: Log

  constructor(ms: number, log: Log) {
    this.#ms = ms
    this.#log = log
  }

  /**
   * Charges for an order and returns the receipt. Rejects when `signal` aborts. Give a real
   * provider the order as idempotency key: if a process dies before it has recorded the charge,
   * another process charges again.
   */
  async charge(order: string, signal: AbortSignal): Promise<string> {
    this.#log.info('charging', { order })
    await sleep(this.#ms, undefined, { signal })
    this.#log.info('charged', { order })
    return randomUUID()
  }
}
