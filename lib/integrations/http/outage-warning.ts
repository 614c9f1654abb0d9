// Warns once if a middleware refuses requests because the store can't be used.

import type { Refusal } from '../../../types/http'
import { FirstWarning } from './first-warning'
import { isOutage } from './refusal'

const KIND = { code: 'LEASEHOLD_STORE_UNAVAILABLE', status: 503, option: 'onUnavailable' }

/** Warns of the first request that one middleware refuses because of the store. */
export class OutageWarning {
  readonly #first: FirstWarning

  /** `isHeard`: whether the middleware has an `onUnavailable` callback, which gets each error. */
  constructor(middleware: string, isHeard: boolean) {
    this.#first = new FirstWarning(KIND, middleware, isHeard)
  }

  /** Warns of `refusal` if the store is the reason. */
  warn({ status, error }: Refusal): void {
    if (status === KIND.status && isOutage(error)) this.#first.warn(error)
  }
}
