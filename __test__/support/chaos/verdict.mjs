// What a fenced storage and those who used it saw, and what is wrong with it. Pure: histories in, sentences out.

import { faults } from '../history.mjs'

/**
 * What is wrong at the storage, as sentences. `operations` are { lock, op, who, fence, accepted } in the order in which it
 * took them: it has to refuse every fence that is smaller than one that it has seen of that lock, and no other.
 */
export function* wrongAtStorage(operations) {
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
 * What is wrong with what the holders believed, as sentences. `tenures` are { lock, most, fence, begin, end, who, refused }:
 * at `begin` and at `end` the lease said that it was held. Nobody else may have held it then, a later one must have a
 * larger fence, and who holds it afterwards still must not have been `refused` by the storage.
 */
export function* wrongWithTenures(tenures) {
  yield* faults(tenures)
  for (const { lock, who, fence, refused } of tenures) {
    if (refused)
      yield `${lock}: fence ${fence} of ${who} was refused while it held the lock: a larger one was there before`
  }
}

/**
 * Both: { wrong, overlaps }, sentences. What is `wrong` must never be; `overlaps` must not be where the store keeps what it
 * has granted.
 */
export const judge = ({ operations, tenures }) => ({
  wrong: [...wrongAtStorage(operations)],
  overlaps: [...wrongWithTenures(tenures)],
})
