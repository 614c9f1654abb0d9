// Hands tickets to their callers one at a time.

import { ignore } from '../util/deferred'

/** Resolves when the callers of all earlier turns have their tickets. */
let last: Promise<void> = Promise.resolve()

/**
 * Resolves when the next caller may get its ticket. Then note that the ticket is seen, and return
 * it in the same microtask. The next turn begins when the caller's code has run. If that code ends
 * the process, the engine releases the leases whose callers have not had their turn.
 *
 * Between the note and the caller's code, only those microtasks run that were queued before. If one
 * of them ends the process, or if another thread ends this one at that moment, the lock stays taken
 * until the time of the ticket is over. The same happens if the caller's code first waits for other
 * promises, as `Promise.all()` does, and the process ends meanwhile.
 */
export function ticketTurn(): Promise<void> {
  const turn = last
  // Add this before the caller continues: then its code runs before the next turn.
  last = turn.then(ignore).then(ignore)
  return turn
}
