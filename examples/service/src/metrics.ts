// Answers /metrics. Your proxy should not pass on /metrics and /health to visitors.

import type { RequestHandler } from 'express'
import type { LockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client'

export class Metrics {
  readonly #register = new Registry()
  /** How long requests took. */
  readonly requests = new Histogram({
    name: 'http_request_duration_seconds',
    help: 'How long requests took',
    labelNames: ['method', 'route', 'status'],
    buckets: [0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10],
    registers: [this.#register],
  })

  constructor(locks: LockClient) {
    collectDefaultMetrics({ register: this.#register })
    collect(locks, { register: this.#register })
  }

  readonly answer: RequestHandler = async (_request, response) => {
    response.type(this.#register.contentType).send(await this.#register.metrics())
  }
}
