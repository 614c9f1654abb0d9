// Serves the orders that visitors pay.

import { type Request, Router } from 'express'
import type { LockClient } from 'leasehold'
import { lockRequest } from 'leasehold/express'
import type { Config } from './config.js'
import type { Payments } from './payments.js'
import type { Provider } from './provider.js'

/**
 * Limits a payment, in ms. If it is larger, the limit in shutdown.ts has to be larger, too; if it
 * is smaller, slow payments fail.
 */
const PAYMENT_LIMIT = 2_500

interface Parts {
  readonly config: Config
  readonly locks: LockClient
  readonly payments: Payments
  readonly provider: Provider
}

export function orderRoutes({ config, locks, payments, provider }: Parts): Router {
  const orders = Router()
  orders.param('id', (_request, _response, next, id) => next(/^[\w-]{1,64}$/.test(id) ? undefined : 'route'))

  orders.get('/:id/payment', async (request, response) => {
    const payment = await payments.find(request.params.id)
    if (payment) response.json(payment)
    else response.status(404).json({ title: 'Not paid', status: 404 })
  })

  const lock = lockRequest(
    locks,
    {
      key: (request: Request<{ id: string }>) => `order:${request.params.id}`,
      wait: config.lockWait,
      // The error handler logs the error and answers 503. The default answer leaves no trace in the
      // log.
      onUnavailable: ({ error }, _request, _response, next) => next(error),
    },
    async (request, response) => {
      const order = request.params.id
      // A lock does not make this idempotent: an earlier request may have paid.
      const paid = await payments.find(order)
      if (paid) {
        response.json(paid)
        return
      }
      const signal = AbortSignal.any([request.lease.signal, AbortSignal.timeout(PAYMENT_LIMIT)])
      const receipt = await provider.charge(order, signal)
      response.status(201).json(await payments.record(order, receipt, request.lease))
    },
  )
  orders.post('/:id/pay', lock)
  return orders
}
