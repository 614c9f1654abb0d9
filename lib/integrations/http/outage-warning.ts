// Warns once if a middleware refuses requests because the store can't be used.

import type * as api from '../../../index'
import type { Refusal } from '../../../types/http'
import { FirstWarning } from './first-warning'
import { isOutage } from './refusal'

const KIND = { code: 'LEASEHOLD_STORE_UNAVAILABLE', status: 503, option: 'onUnavailable' }

/** The warnings of each client, by the middleware's name. */
const warnings = new WeakMap<api.LockClient, Map<string, FirstWarning>>()

/**
 * Warns of the first request that a middleware refuses because of the store. All middlewares of one
 * name and client have one warning: a server may make a middleware for each request.
 */
export class OutageWarning {
  readonly #first: FirstWarning | undefined

  /** `isHeard`: whether the middleware has an `onUnavailable` callback, which gets each error. */
  constructor(locks: api.LockClient, middleware: string, isHeard: boolean) {
    this.#first = isHeard ? undefined : warningOf(locks, middleware)
  }

  /** Warns of `refusal` if the store is the reason. */
  warn({ status, error }: Refusal): void {
    if (status === KIND.status && isOutage(error)) this.#first?.warn(error)
  }
}

function warningOf(locks: api.LockClient, middleware: string): FirstWarning {
  const known = warnings.get(locks) ?? new Map<string, FirstWarning>()
  warnings.set(locks, known)
  const first = known.get(middleware) ?? new FirstWarning(KIND, middleware, false)
  known.set(middleware, first)
  return first
}
