// Records of leases, written by many processes, and the check of these records.
//
// Each lease is one line of JSON at the end of a file, in one write. `begin` was read after the
// lease was acquired and `end` before it was released, on the host's monotonic clock: if two
// records overlap, the leases did, too.

import { closeSync, openSync, readFileSync, writeSync } from 'node:fs'

/**
 * Opens the file at `path` to write leases: { lock, most, fence, begin, end, who }; `most` is 1 for
 * an exclusive lease.
 */
export function openHistory(path) {
  const file = openSync(path, 'a')
  return {
    write: (tenure) => writeSync(file, `${JSON.stringify(tenure)}\n`),
    /** Records that work of that `id` begins: { id, who }. Shows later which work was cut off. */
    begin: (work) => writeSync(file, `${JSON.stringify({ ...work, began: true })}\n`),
    close: () => closeSync(file),
  }
}

export const readHistory = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))

const describe = ({ who, most, fence, begin, end }) =>
  `${who} (${most === 1 ? 'alone' : `one of ${most}`}, fence ${fence}, ${begin.toFixed(3)} to ${end.toFixed(3)})`

/** Yields what is wrong with the leases of one lock, given in the order in which they began. */
function* wrongWith(tenures) {
  let inside = []
  let top = 0
  let topAlone = 0
  for (const tenure of tenures) {
    inside = inside.filter(({ end }) => end > tenure.begin)
    const all = [...inside, tenure]
    const most = Math.min(...all.map((each) => each.most))
    if (all.length > most) yield `${all.length} at a time, at most ${most}: ${all.map(describe).join('; ')}`
    inside = all
    // An exclusive lease must have a larger fence than all earlier leases; a shared one must have a
    // larger fence than the last exclusive one.
    const before = tenure.most === 1 ? top : topAlone
    if (tenure.fence <= before) yield `fence ${before} was before ${describe(tenure)}`
    top = Math.max(top, tenure.fence)
    if (tenure.most === 1) topAlone = Math.max(topAlone, tenure.fence)
  }
}

/** Returns all that is wrong with a history, as sentences. */
export function faults(history) {
  const locks = new Map()
  for (const tenure of history) {
    const tenures = locks.get(tenure.lock)
    if (tenures) tenures.push(tenure)
    else locks.set(tenure.lock, [tenure])
  }
  return [...locks].flatMap(([lock, tenures]) =>
    [...wrongWith(tenures.sort((a, b) => a.begin - b.begin))].map((fault) => `${lock}: ${fault}`),
  )
}
