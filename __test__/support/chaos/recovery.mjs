// Computes the rate of work over time, and how soon after a heal the rate was normal. Pure. Times
// are in ms.

const WINDOW = 100

/** Counts how many of the ascending `times` lie in each 100 ms from `from` to `to`. */
export function rates(times, from, to) {
  const counts = new Array(Math.max(0, Math.ceil((to - from) / WINDOW))).fill(0)
  for (const time of times) {
    if (time >= from && time < to) counts[Math.floor((time - from) / WINDOW)]++
  }
  return counts
}

/** Returns the longest time without work, in ms, from the result of rates(). */
export const longestGap = (counts) =>
  WINDOW *
  counts.reduce(([gap, longest], count) => (count ? [0, longest] : [gap + 1, Math.max(longest, gap + 1)]), [0, 0])[1]

/** Returns the median rate in 100 ms from `from` to `to`. */
export function usualRate(times, from, to) {
  const counts = rates(times, from, to).sort((a, b) => a - b)
  return counts[Math.floor(counts.length / 2)] ?? 0
}

/**
 * Returns how many ms after `healed` `count` of the ascending `times` had come within 100 ms, or
 * Infinity if they never did. If the count is half of the usual rate, that is the time until half
 * of the usual rate was reached.
 */
export function recovery(times, healed, count) {
  for (let first = times.findIndex((time) => time >= healed); first >= 0 && first + count <= times.length; first++) {
    const last = times[first + count - 1]
    if (last - times[first] <= WINDOW) return last - healed
  }
  return Number.POSITIVE_INFINITY
}

/**
 * Returns how soon after each heal half of the usual rate was reached: [{ node, fault, ms }]. `ms`
 * is undefined where the next fault came before that and within `limit`. `faults` are { node,
 * fault, began, healed }. A fault disturbs the recovery of others only if `exclusive`, that is, if
 * one fault is enough to stop all work.
 */
export function recoveries(times, faults, { usual, limit, exclusive }) {
  const count = Math.max(1, Math.ceil(usual / 2))
  return faults.map(({ node, fault, healed }) => {
    const next = faults.map(({ began }) => began).filter((began) => exclusive && began >= healed)
    const free = Math.min(...next, Number.POSITIVE_INFINITY) - healed
    const ms = recovery(times, healed, count)
    return { node, fault, ms: ms > free && free < limit ? undefined : ms }
  })
}
