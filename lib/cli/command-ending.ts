// How the guard ends a command whose leasehold is gone or stopped, and keeps the lock held until
// the command has ended.

import { setTimeout as sleep } from 'node:timers/promises'
import { LockClient } from '../client/client'
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
 * the store is out of reach, the command's processes in other sessions get SIGTERM later, and have
 * less time to clean up. If they are smaller, a slow store answers during the search, which blocks
 * this process, and the guard hears of the adoption after the search.
 */
const [ADOPTS_IN_PART, ADOPTS_LEAST, ADOPTS_MOST] = [1 / 4, 300, 1_000]
/**
 * How long the guard may search before the command gets SIGTERM, in ms. If this is larger, the
 * command has less time to clean up. If it is smaller, the guard may miss a process that it finds
 * only by its parent, because SIGTERM may end the parent.
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
  let isAsking = locks !== undefined
  /** Returns true if another command may begin soon: then this one has no more time. */
  const isLate = () =>
    lease === undefined ? !isAsking || performance.now() >= safe : lease.remaining <= ticket.ttl / 3

  const target = new Target(command, () => {
    if (performance.now() - begin > SEARCHED_WITHIN) terminate()
    return isLate()
  })
  let isTerminated = false
  const terminate = () => {
    if (isTerminated || grace === 0) return
    isTerminated = true
    target.signal('SIGTERM')
    target.signal('SIGCONT')
  }

  if (grace === 0) target.killKnown()
  const adopted =
    locks === undefined
      ? Promise.resolve()
      : adopt(locks, takeover).then((adoptee) => {
          lease = adoptee
          isAsking = false
        })
  // Adopt before the search, which takes seconds on a busy machine with many processes.
  const left = Math.max(0, safe - performance.now())
  const pause = Math.min(left, ADOPTS_MOST, Math.max(ADOPTS_LEAST, left * ADOPTS_IN_PART))
  const timer = setTimeout(terminate, SEARCHED_WITHIN)
  await Promise.race([adopted, sleep(pause)])
  clearTimeout(timer)
  if (grace > 0 && !isLate()) {
    const members = target.look()
    terminate()
    target.endOthers(members)
  }
  const isGone = await target.isGoneWithin(grace - (performance.now() - begin), () => !isLate())
  if (!isGone) await target.isKilledWithin(KILLED_WITHIN)
  await adopted
  await lease?.release()
}

/** Resolves with the adopted lease, or with `undefined` if the adoption fails. */
async function adopt(locks: LockClient, { ticket }: Takeover): Promise<Lease | undefined> {
  const acquirer = LockClient.acquirerOf(locks).outliving()
  const asked = { ...acquirer.defaults, ttl: ticket.ttl, most: ticket.most, wait: -1 }
  return await acquirer.adopt(ticket, asked).catch(() => undefined)
}
