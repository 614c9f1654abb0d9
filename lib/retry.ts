// Trying again after growing pauses: the other way to wait, without a place in the queue.

import type * as api from '../index'
import { type Abortable, onAbort, unwatch, watch } from './abort'
import { badType, checkMs, checkNumber, firstOf, MAX_MS, outOfRange, readOptions } from './arguments'
import { now } from './clock'
import * as errors from './errors'
import type { Outage } from './outage'
import { defer, type Make, raise } from './promise'

/** How to try again, with the defaults filled in. */
export interface Retry {
  readonly retries: number
  readonly minDelay: number
  readonly maxDelay: number
  readonly factor: number
  /** By what part of itself a pause may be longer or shorter. */
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
/** Enough that two who met once do not meet again. */
const JITTER = 0.5

export function parseRetry(given: unknown): Retry {
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

/** Who pauses, so that it can be told that there is no use in it any more. */
export type Pauses = Set<() => void>

interface Attempts<T> {
  readonly keys: string | readonly string[]
  readonly retry: Retry
  /** How long to go on, in ms or `Infinity`. */
  readonly wait: number
  readonly signal: AbortSignal | undefined
  readonly pauses: Pauses
  /** Set if the call fails fast: then it does not try again while the store can't grant leases. */
  readonly outage?: Outage | undefined
  /** Called before each further try. */
  readonly again?: (() => void) | undefined
  /** `null`: somebody else holds the lock. */
  attempt(): Promise<T | null>
  /** Makes the error of a call that found the lock held at each of `tries`, for `waited` ms. */
  gaveUp(tries: number, waited: number): Promise<errors.LockTimeoutError>
}

/** The first outcome of `attempt` that is not `null`. */
export async function trying<T>(attempts: Attempts<T>): Promise<T> {
  const { keys, retry, wait, signal, pauses, outage, again } = attempts
  const start = now()
  const end = start + wait
  let delay = retry.minDelay
  for (let count = 0; ; count++) {
    let fault: unknown
    try {
      const outcome = await attempts.attempt()
      if (outcome !== null) return outcome
    } catch (error) {
      if (!errors.mayPass(error) || outage?.isOn) throw error
      fault = error
    }
    const left = end - now()
    // What is wrong is what was seen last, as with those who wait in the queue.
    if (count >= retry.retries || left <= 0) throw fault ?? (await attempts.gaveUp(count + 1, now() - start))
    const pause = Math.min(delay * (1 + retry.jitter * (Math.random() * 2 - 1)), left, MAX_MS)
    // While the store is away, the next try fails at once, so it comes without a pause.
    if (!outage?.isAway) {
      await new Pause(firstOf(keys), signal, outage ? [pauses, outage.pauses] : [pauses]).over(pause)
    }
    delay = Math.min(delay * retry.factor, retry.maxDelay)
    again?.()
  }
}

class Pause implements Abortable {
  readonly #key: string
  readonly #signal: AbortSignal | undefined
  /** The sets of functions that end pauses. This pause adds its own function to each. */
  readonly #pauses: readonly Pauses[]
  readonly #deferred = defer<void>()
  #timer: NodeJS.Timeout | undefined

  constructor(key: string, signal: AbortSignal | undefined, pauses: readonly Pauses[]) {
    this.#key = key
    this.#signal = signal
    this.#pauses = pauses
  }

  /**
   * Resolves after `ms`, or as soon as the client is closed or the store goes away. The next try
   * then rejects.
   */
  over(ms: number): Promise<void> {
    if (this.#signal?.aborted) throw errors.aborted(this.#key, this.#signal.reason)
    if (this.#signal !== undefined) watch(this.#signal, this)
    for (const pauses of this.#pauses) pauses.add(this.#end)
    // It keeps the process alive, as every promise does that is pending.
    this.#timer = setTimeout(this.#end, ms)
    return this.#deferred.promise.catch(raise)
  }

  readonly #end = (): void => {
    this.#forget()
    this.#deferred.resolve()
  };

  [onAbort](signal: AbortSignal): void {
    this.#forget()
    const make: Make = () => errors.aborted(this.#key, signal.reason)
    this.#deferred.reject(make)
  }

  #forget(): void {
    clearTimeout(this.#timer)
    for (const pauses of this.#pauses) pauses.delete(this.#end)
    if (this.#signal !== undefined) unwatch(this.#signal, this)
  }
}
