// How much was done in the course of time, and how soon after a heal it was as much as usual. Pure. Times are in ms.

const WINDOW = 100

/** How many of the ascending `times` lie in each 100 ms from `from` to `to`. */
export function rates(times, from, to) {
  const counts = new Array(Math.max(0, Math.ceil((to - from) / WINDOW))).fill(0)
  for (const time of times) {
    if (time >= from && time < to) counts[Math.floor((time - from) / WINDOW)]++
  }
  return counts
}

/** For how many ms on end nothing was done, by what rates() returned. */
export const longestGap = (counts) =>
  WINDOW *
  counts.reduce(([gap, longest], count) => (count ? [0, longest] : [gap + 1, Math.max(longest, gap + 1)]), [0, 0])[1]

/** The median rate in 100 ms from `from` to `to`. */
export function usualRate(times, from, to) {
  const counts = rates(times, from, to).sort((a, b) => a - b)
  return counts[Math.floor(counts.length / 2)] ?? 0
}

/**
 * How many ms after `healed` `count` of the ascending `times` had come within 100 ms; Infinity if they never did. With half
 * of the usual rate as the count: when it was half as much as usual again.
 */
export function recovery(times, healed, count) {
  for (let first = times.findIndex((time) => time >= healed); first >= 0 && first + count <= times.length; first++) {
    const last = times[first + count - 1]
    if (last - times[first] <= WINDOW) return last - healed
  }
  return Number.POSITIVE_INFINITY
}

/**
 * How soon after each heal it was half as much as usual again: [{ node, fault, ms }], `ms` being undefined where the
 * next fault came before that and within `limit`. `faults` are { node, fault, began, healed }; a fault disturbs others
 * only if `exclusive`, that is, if one fault is enough to stop everything.
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
