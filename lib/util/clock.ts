import { performance } from 'node:perf_hooks'

/**
 * Returns the time in ms on a monotonic clock. It is bound at load time because tests with a fake
 * clock replace `performance.now()`, while the engine's leases and waits follow the real clock.
 */
export const now: () => number = performance.now.bind(performance)

/** Returns the time of the wall clock in ms since 1970. Bound at load time, like {@link now}. */
export const wallNow: () => number = Date.now.bind(Date)
