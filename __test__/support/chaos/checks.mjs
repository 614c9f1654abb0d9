// Finds what is wrong in the records of a fenced storage and its users. Pure: histories in,
// sentences out.

import { faults } from '../history.mjs'

/**
 * Yields what is wrong at the storage, as sentences. `operations` are { lock, op, who, fence,
 * accepted } in the order of their arrival. The storage has to refuse every fence that is smaller
 * than one that it has seen of that lock, and no other.
 */
export function* faultsAtStorage(operations) {
  const highest = new Map()
  for (const [i, { lock, op, who, fence, accepted }] of operations.entries()) {
    const seen = highest.get(lock) ?? 0
    const what = `${lock}: ${op} number ${i} of ${who} with fence ${fence}`
    if (accepted && fence < seen) yield `${what} was accepted from a stale holder: ${seen} was there before`
    if (!accepted && fence >= seen) yield `${what} was refused, though only ${seen} was there before`
    if (accepted) highest.set(lock, Math.max(seen, fence))
  }
}

/**
 * Yields what is wrong with what the holders believed, as sentences. `tenures` are { lock, most,
 * fence, begin, end, who, refused }: at `begin` and at `end` the lease was held. No other client
 * may have held it then, a later lease must have a larger fence, and a holder that was `refused` by
 * the storage must not hold the lock after that.
 */
export function* faultsOfLeases(tenures) {
  yield* faults(tenures)
  for (const { lock, who, fence, refused } of tenures) {
    if (refused)
      yield `${lock}: fence ${fence} of ${who} was refused while it held the lock: a larger one was there before`
  }
}

/**
 * Checks both. Returns { wrong, overlaps }, as sentences. `wrong` must always be empty; `overlaps`
 * must be empty if the store keeps its leases.
 */
export const judge = ({ operations, tenures }) => ({
  wrong: [...faultsAtStorage(operations)],
  overlaps: [...faultsOfLeases(tenures)],
})
