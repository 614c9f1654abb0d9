// How the guard ends a command whose leasehold is gone or stopped, and keeps the lock held until
// the command has ended.

import { setTimeout as sleep } from 'node:timers/promises'
import { LockClient } from '../client/client'
import { LockLostError } from '../diagnostics/errors'
import type { Lease } from '../lock/lease'
import type { Takeover } from './takeover'
import { Target } from './target'

/**
 * How long the guard waits for the end of a command that it killed, in ms. If this is larger, a
 * process that can't be killed keeps its lock for longer. If it is smaller, a busy machine releases
 * the lock while the command still runs.
 */
const KILLED_WITHIN = 2_000
/**
 * How long the guard waits for the adoption before it searches for the command's processes: a part
 * of the time for which the lock is safe, and bounds for the result in ms. If these are larger, and
 * the store is out of reach, the command gets SIGTERM later, and has less time to clean up. If they
 * are smaller, a slow store answers during the search, which blocks this process, and the guard
 * hears of the adoption after the search.
 */
const [ADOPTS_IN_PART, ADOPTS_LEAST, ADOPTS_MOST] = [1 / 4, 300, 1_000]
/**
 * How long a search may take before the command gets SIGTERM, or SIGKILL if there is no more time,
 * in ms. If this is larger, the command has less time to clean up. If it is smaller, the guard may
 * miss a process that it finds only by its parent, because the signal may end the parent.
 */
const SEARCHED_WITHIN = 100

/**
 * Ends a command: sends SIGTERM, and SIGKILL after the grace, or before the lock is free. Adopts
 * the lease meanwhile, and releases it when the command has ended, or can't be killed. `safe` is
 * until when the lock is safe without the adoption, in ms of `performance.now()`. Without `locks`,
 * there is no adoption.
 */
export async function endCommand(locks: LockClient | undefined, takeover: Takeover, safe: number): Promise<void> {
  const { ticket, grace, command } = takeover
  const begin = performance.now()
  let lease: Lease | undefined
  let isLost = false
  /** Returns true if another command may begin soon: then this one has no more time. */
  const isLate = () => isLost || (lease === undefined ? performance.now() >= safe : lease.remaining <= ticket.ttl / 3)

  const target = new Target(command, (searched) => {
    if (searched <= SEARCHED_WITHIN) return false
    terminate()
    return isLate()
  })
  /** When the command got SIGTERM, in ms of `performance.now()`. If `grace` is 0, it gets none. */
  let terminated = grace === 0 ? begin : undefined
  const terminate = () => {
    if (terminated !== undefined) return
    terminated = performance.now()
    target.signal('SIGTERM')
    target.signal('SIGCONT')
  }

  const adopted = adopt(locks, takeover)
    .then((adoptee) => {
      lease = adoptee
    })
    .catch((error) => {
      // After other errors, the lock stays held until `safe`.
      isLost = error instanceof LockLostError
    })
  if (grace > 0) {
    // Adopt before the search, which takes seconds on a busy machine with many processes.
    const safeFor = Math.max(0, safe - begin)
    const pause = Math.min(safeFor, ADOPTS_MOST, Math.max(ADOPTS_LEAST, safeFor * ADOPTS_IN_PART))
    await Promise.race([adopted, sleep(pause)])
  }
  // Search before the first signal: the signal may end a parent, and some processes are found only
  // by their parent.
  const members = target.look()
  if (grace === 0 || isLate()) target.killKnown()
  else {
    terminate()
    target.endOthers(members)
  }
  const left = grace - (performance.now() - (terminated ?? begin))
  const isGone = await target.isGoneWithin(left, () => !isLate())
  if (!isGone) await target.isKilledWithin(KILLED_WITHIN)
  await adopted
  await lease?.release()
}

/** Releases the lock of a command that is gone. */
export async function releaseLock(locks: LockClient | undefined, takeover: Takeover): Promise<void> {
  const lease = await adopt(locks, takeover).catch((error) => {
    // leasehold has already released the lock.
    if (!(error instanceof LockLostError)) throw error
  })
  await lease?.release()
}

/** Resolves with the adopted lease, or with `undefined` if `locks` is `undefined`. */
async function adopt(locks: LockClient | undefined, { ticket }: Takeover): Promise<Lease | undefined> {
  if (locks === undefined) return undefined
  const acquirer = LockClient.acquirerOf(locks).outliving()
  return await acquirer.adopt(ticket, { ...acquirer.defaults, ttl: ticket.ttl, most: ticket.most, wait: -1 })
}
