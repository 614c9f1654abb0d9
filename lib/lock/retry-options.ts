// The option `retry` of an acquire.

import type * as api from '../../index'
import { badType, checkMs, checkNumber, outOfRange, readOptions } from '../util/arguments'

/** Says how to try again, with the defaults filled in. */
export interface RetryPolicy {
  readonly retries: number
  readonly minDelay: number
  readonly maxDelay: number
  readonly factor: number
  /** The share of a pause by which it may be longer or shorter: 0 to 1. */
  readonly jitter: number
}

const RETRY_OPTIONS = [
  'retries',
  'minDelay',
  'maxDelay',
  'factor',
  'jitter',
] as const satisfies (keyof api.RetryOptions)[]
const MAX_RETRIES = 2 ** 31 - 1
/**
 * The default jitter. It is large enough that two clients whose tries collided once do not collide
 * again.
 */
const JITTER = 0.5

export function parseRetry(given: unknown): RetryPolicy {
  if (given !== true && (typeof given !== 'object' || given === null || Array.isArray(given))) {
    throw badType('retry', 'true or an object of options, as in { retries: 3 }', given)
  }
  const options = readOptions<api.RetryOptions>(given === true ? {} : given, RETRY_OPTIONS)
  const { retries = 10, minDelay = 50, factor = 2, jitter = true } = options
  if (retries !== Number.POSITIVE_INFINITY) checkNumber('retries', retries, 0, MAX_RETRIES, true)
  checkMs('minDelay', minDelay, 1)
  const { maxDelay = Math.max(1_000, minDelay) } = options
  checkMs('maxDelay', maxDelay, 1)
  if (maxDelay < minDelay) throw outOfRange('maxDelay', `>= minDelay, which is ${minDelay}`, maxDelay)
  checkNumber('factor', factor, 1, 100)
  if (typeof jitter !== 'boolean') checkNumber('jitter', jitter, 0, 1)
  return { retries, minDelay, maxDelay, factor, jitter: Number(jitter === true ? JITTER : jitter) }
}
