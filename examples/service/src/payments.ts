// Stores which orders are paid. Your database goes here: docs/fencing.md has the same in SQL.

import type { Lease } from 'leasehold'
import type { Redis } from './redis.js'

export interface Payment {
  readonly order: string
  readonly receipt: string
  readonly paidAt: string
  readonly fence: number
}

/**
 * Records a payment and its receipt in one step. Refuses a fence that is smaller than the last one:
 * a process that was suspended may write after another process has got its lock.
 */
const RECORD = `
local last = redis.call('HGET', KEYS[1], 'fence')
if last and tonumber(last) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'payment', ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('INCR', KEYS[3])
return 1`

export class Payments {
  readonly #redis: Redis

  constructor(redis: Redis) {
    this.#redis = redis
  }

  async find(order: string): Promise<Payment | undefined> {
    const text = await this.#redis.hGet(`service:order:${order}`, 'payment')
    return text ? (JSON.parse(text) as Payment) : undefined
  }

  /**
   * Records that an order is paid. Call it under the order's lock, and only if `find()` returns no
   * payment. Rejects if a later holder of the lock has written.
   */
  async record(order: string, receipt: string, { fence }: Lease): Promise<Payment> {
    const payment = { order, receipt, paidAt: new Date().toISOString(), fence }
    const recorded = await this.#redis.eval(RECORD, {
      keys: [`service:order:${order}`, 'service:outbox', 'service:payments'],
      arguments: [String(fence), JSON.stringify(payment)],
    })
    if (!recorded)
      throw new Error(`order ${order}: a later holder of its lock has written, so fence ${fence} is too old`)
    return payment
  }

  async count(): Promise<number> {
    return Number(await this.#redis.get('service:payments'))
  }
}
