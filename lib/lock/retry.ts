// Tries again after growing pauses, instead of waiting in the queue.

import { type LockTimeoutError, mayPass } from '../diagnostics/errors'
import { firstOf, MAX_MS } from '../util/arguments'
import { now } from '../util/clock'
import type { Outage } from './outage'
import { Pause, type Pauses } from './pause'
import type { RetryPolicy } from './retry-options'

interface Attempts<T> {
  readonly keys: string | readonly string[]
  readonly retry: RetryPolicy
  /** How long to go on, in ms or `Infinity`. */
  readonly wait: number
  readonly signal: AbortSignal | undefined
  readonly pauses: Pauses
  /** Set if the call fails fast: then it does not try again while the store can't grant leases. */
  readonly outage?: Outage | undefined
  /** Called before each further try. */
  readonly onRetry?: (() => void) | undefined
  /** Resolves with `null` if another holder has the lock. */
  attempt(): Promise<T | null>
  /** Makes the error of a call that found the lock held at each of `tries`, for `waited` ms. */
  gaveUp(tries: number, waited: number): Promise<LockTimeoutError>
}

/** Resolves with the first outcome of `attempt` that is not `null`. */
export async function retrying<T>(attempts: Attempts<T>): Promise<T> {
  const { keys, retry, wait, signal, pauses, outage, onRetry } = attempts
  const start = now()
  const end = start + wait
  let delay = retry.minDelay
  for (let count = 0; ; count++) {
    let fault: unknown
    try {
      const outcome = await attempts.attempt()
      if (outcome !== null) return outcome
    } catch (error) {
      if (!mayPass(error) || outage?.isOn) throw error
      fault = error
    }
    const left = end - now()
    // Report the last fault, as for calls that wait in the queue.
    if (count >= retry.retries || left <= 0) throw fault ?? (await attempts.gaveUp(count + 1, now() - start))
    const pause = Math.min(delay * (1 + retry.jitter * (Math.random() * 2 - 1)), left, MAX_MS)
    // While the store is away, the next try fails at once, so it comes without a pause.
    if (!outage?.isAway) {
      await new Pause(firstOf(keys), signal, start, outage ? [pauses, outage.pauses] : [pauses]).over(pause)
    }
    delay = Math.min(delay * retry.factor, retry.maxDelay)
    onRetry?.()
  }
}
