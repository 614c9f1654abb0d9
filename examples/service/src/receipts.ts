// Creates the worker: one server at a time sends the receipts, in order.

import { setTimeout as sleep } from 'node:timers/promises'
import { createLockWorker, type LockClient, type LockWorker } from 'leasehold'
import type { Log } from './log.js'
import type { Outbox } from './outbox.js'

/**
 * How long the worker rests if there is nothing to send, in ms. If this is larger, receipts go out
 * later; if it is smaller, the worker asks Redis more often.
 */
const PAUSE = 250

export function createReceiptWorker(locks: LockClient, outbox: Outbox, log: Log): LockWorker {
  const worker = createLockWorker({
    client: locks,
    key: 'receipts',

    async startWork(lease, signal) {
      while (!signal.aborted) {
        const payment = await outbox.first()
        if (payment) {
          // Your mailer goes here. If the process dies here, the next worker sends the receipt
          // again.
          log.info('receipt sent', { order: payment.order, receipt: payment.receipt })
          await outbox.removeFirst(lease)
        } else {
          await sleep(PAUSE, undefined, { signal }).catch(() => {}) // the signal ends the pause
        }
      }
    },
  })
  worker.on('state', (state) => log.info('receipt worker', { state }))
  worker.on('error', (error) => log.error('receipt worker failed', { error }))
  return worker
}
