// Stores the receipts that the worker has to send, in the order of the payments.

import type { Lease } from 'leasehold'
import type { Payment } from './payments.js'
import type { Redis } from './redis.js'

const REMOVE = `
local last = redis.call('GET', KEYS[2])
if last and tonumber(last) > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('LPOP', KEYS[1])
return 1`

export class Outbox {
  readonly #redis: Redis

  constructor(redis: Redis) {
    this.#redis = redis
  }

  async first(): Promise<Payment | undefined> {
    const text = await this.#redis.lIndex('service:outbox', 0)
    return text ? (JSON.parse(text) as Payment) : undefined
  }

  /**
   * Removes the first payment. Rejects if a later worker has removed one: then the first payment
   * may be another one by now.
   */
  async removeFirst({ fence }: Lease): Promise<void> {
    const keys = ['service:outbox', 'service:outbox-fence']
    const removed = await this.#redis.eval(REMOVE, { keys, arguments: [String(fence)] })
    if (!removed) throw new Error(`another worker sends the receipts now, so fence ${fence} is too old`)
  }
}
