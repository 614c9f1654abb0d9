import { performance } from 'node:perf_hooks'

/**
 * Returns the time in ms on a monotonic clock. Bound at load time: fake clocks of tests replace
 * `performance.now()`, and the engine's leases and waits follow the real clock.
 */
export const now: () => number = performance.now.bind(performance)
