// Describes locks in words.

import type * as api from '../../index'
import { isOnceKey } from '../lock/once-key'
import { formatDuration } from '../util/format-duration'
import { quoted, shownName, table } from './terminal'

/**
 * Returns whether the lock is the memory of an id of `locks.once()` or of a tick of a schedule. No
 * process holds it. The store can't tell whether the work still runs.
 */
export function isRemembered(key: string, { leases }: api.LockInfo): boolean {
  return isOnceKey(key) && leases[0]?.holder !== null
}

/**
 * Returns the names of the holders; of more than two holders, the first name and the number of the
 * others. Returns `-` if the store names no lease.
 */
export function holdersOf({ leases }: api.LockInfo): string {
  const names = leases.map(({ holder }) => (holder === null ? '(another library)' : shownName(holder)))
  return names.length > 2 ? `${names[0]} and ${names.length - 1} more` : names.join(', ') || '-'
}

/**
 * Returns when the last of the leases ends unless it is renewed. Returns `-` if the store names no
 * lease.
 */
export function remainingOf({ leases }: api.LockInfo): string {
  const ends = leases.map(({ remaining }) => remaining ?? Number.POSITIVE_INFINITY)
  if (ends.length === 0) return '-'
  const last = Math.max(...ends)
  return last === Number.POSITIVE_INFINITY ? 'for ever' : formatDuration(last)
}

export const fenceOf = ({ fence }: api.LeaseInfo): string => (fence === null ? '-' : String(fence))

/** Returns a table of locks, with the keys as `showKey` returns them. */
export function tableOf(locks: readonly api.ListedLock[], showKey: (key: string) => string): string {
  const rows = locks.map((lock) => [
    showKey(lock.key),
    isRemembered(lock.key, lock) ? 'once' : lock.shared ? 'shared' : 'alone',
    holdersOf(lock),
    fenceOf(lock),
    remainingOf(lock),
    String(lock.waiters.length),
  ])
  return table(['KEY', 'HELD', 'HOLDER', 'FENCE', 'REMAINING', 'WAITERS'], rows, [3, 4, 5])
}

/** Returns a lock as JSON shows it: without `waiting`, because no call of this process waits. */
export function tellable<T extends api.LockInfo>({ waiting: _, ...info }: T): Omit<T, 'waiting'> {
  return info
}

/** Returns how many servers of a quorum have the lease. Returns '' for other stores. */
function serversOf({ servers }: api.LeaseInfo): string {
  if (!servers) return ''
  const { held, total, unheard } = servers
  return `, at ${held} of ${total} servers${unheard ? ` (${unheard} did not answer)` : ''}`
}

/** Says that a lock is free, or that the store does not remember an id. */
export function absenceOf(key: string): string {
  return `${quoted(key)} is ${isOnceKey(key) ? 'not remembered' : 'free'}`
}

/** Returns all that is known about an id that the store remembers. */
function memoryOf(key: string, info: api.LockInfo): string {
  const lines = [`${quoted(key)} is remembered as done, or its work still runs`]
  for (const lease of info.leases) {
    const ends = lease.remaining === null ? 'for ever' : `for ${formatDuration(lease.remaining)} more`
    lines.push(`  by ${shownName(lease.holder ?? '')}, fence ${fenceOf(lease)}, ${ends}${serversOf(lease)}`)
  }
  return lines.join('\n')
}

/** Returns all that is known about one lock. */
export function detailsOf(key: string, info: api.LockInfo): string {
  if (isRemembered(key, info)) return memoryOf(key, info)
  const lines = [`${quoted(key)} is held${info.shared ? ', and shared' : ''}`]
  for (const lease of info.leases) {
    const holder = lease.holder === null ? '(another library)' : shownName(lease.holder)
    const ends = lease.remaining === null ? 'never ends' : `ends in ${formatDuration(lease.remaining)} unless renewed`
    lines.push(`  by ${holder}, fence ${fenceOf(lease)}, ${ends}${serversOf(lease)}`)
  }
  lines.push(info.waiters.length === 0 ? 'nobody waits for it' : 'waiting, in this order')
  for (const { holder, shared, age } of info.waiters) {
    lines.push(`  ${shownName(holder)}${shared ? ', shared' : ''}, for ${formatDuration(age)}`)
  }
  return lines.join('\n')
}
