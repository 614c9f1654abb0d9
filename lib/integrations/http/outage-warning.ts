// Warns once if a middleware refuses requests because the store can't be used.

import type * as api from '../../../index'
import type { Refusal } from '../../../types/http'
import { FirstWarning } from './first-warning'
import { isOutage } from './refusal'

const KIND = { code: 'LEASEHOLD_STORE_UNAVAILABLE', status: 503, option: 'onUnavailable' }

/** The reasons that may concern one key alone. */
const OF_A_KEY: readonly unknown[] = ['wrongtype', 'denied'] satisfies api.StoreUnavailableReason[]

/** The warnings of each client, by the middleware's name and what went wrong. */
const warnings = new WeakMap<api.LockClient, Map<string, FirstWarning>>()

/**
 * Warns of the first request that a middleware refuses because of the store. Errors that may
 * concern one key alone have warnings of their own: a visitor may cause such an error, and it must
 * not silence the warning of an outage. All middlewares of one name and client share their
 * warnings: a server may make a middleware for each request.
 */
export class OutageWarning {
  readonly #locks: api.LockClient
  readonly #middleware: string
  readonly #isHeard: boolean

  /** `isHeard`: whether the middleware has an `onUnavailable` callback, which gets each error. */
  constructor(locks: api.LockClient, middleware: string, isHeard: boolean) {
    this.#locks = locks
    this.#middleware = middleware
    this.#isHeard = isHeard
  }

  /** Warns of `refusal` if the store is the reason. */
  warn({ status, error }: Refusal): void {
    if (this.#isHeard || status !== KIND.status || !isOutage(error)) return
    warningOf(this.#locks, this.#middleware, error).warn(error)
  }
}

function warningOf(locks: api.LockClient, middleware: string, error: api.LockError): FirstWarning {
  const known = warnings.get(locks) ?? new Map<string, FirstWarning>()
  warnings.set(locks, known)
  const { reason, votes } = error as api.LockError & { reason?: unknown; votes?: readonly api.Vote[] }
  const ofAKey = [reason, ...(votes ?? []).map(({ vote }) => vote)].find((each) => OF_A_KEY.includes(each))
  const name = ofAKey === undefined ? middleware : `${middleware} ${ofAKey}`
  const first = known.get(name) ?? new FirstWarning(KIND, middleware, false)
  known.set(name, first)
  return first
}
