// Says why a call did not get its lock: who holds the lock, for how long, and how many calls wait
// for it.

import type * as api from '../../index'
import { wallNow } from '../util/clock'
import { formatDuration } from '../util/format-duration'
import { quote } from '../util/printable'

/** Describes a held lock for the error of a call that did not get it. */
export interface Contention {
  /** What the message says about the lock, as in `held by "web-1:4711" for 4.2 s`. */
  readonly words: string
  readonly holder?: string
  readonly heldFor?: number
  readonly waiters?: number
  /** True if the client of the call holds the lock: the call may have been made under it. */
  readonly isOwn?: true
}

/** The client whose call did not get the lock. */
export interface CallingClient {
  readonly id: number
  /** The name of the client at the store. */
  readonly name: string
  readonly isQuorum: boolean
}

/** The store's answer about a lock; `null` if the lock is free. */
export type LockState = Pick<api.LockInfo, 'shared' | 'leases' | 'waiters'> | null

/** What a client itself knows about a lock. */
export interface OwnLeases {
  /** The fences of the leases that it holds. */
  readonly fences: readonly number[]
  /** How many of its calls wait. */
  readonly waiting: number
}

/** The leases of one holder. */
interface Holder {
  /** `null` if another library holds the lock. */
  readonly name: string | null
  readonly isOwn: boolean
  count: number
  /** How long ago the first of the leases was granted, in ms, if that is known. */
  readonly heldFor: number | undefined
}

/**
 * How many holders a message names. If this is larger, the error of a semaphore with many permits
 * is hard to read; if it is smaller, errors hide holders.
 */
const MOST_NAMED = 3
/**
 * How far ahead of the clock the fence of a new lease may be, in ms: fences are reserved in blocks
 * of 64 µs, and the clock of JavaScript counts whole ms. If this is smaller, the message does not
 * say how long a new lease has been held; if it is larger, a wrong clock is taken for a right one.
 */
const AHEAD = 2

/** Describes a held lock whose holder is not known, and says what to do. */
export const UNKNOWN: Contention = { words: 'already held; inspect() shows the holder' }

/** Returns what is known without the store. `heldHere` says whether this client holds the lock. */
export function guess({ name }: CallingClient, heldHere: boolean): Contention {
  return heldHere ? { words: `held by ${nameOf(name, true)}`, holder: name, isOwn: true } : UNKNOWN
}

/** Describes a lock from the store's answer to `caller`. */
export function contentionOf(caller: CallingClient, info: LockState, own: OwnLeases | undefined): Contention {
  if (info === null) return { words: 'held until just now' }
  const holders = holdersOf(caller, info, own?.fences ?? [])
  const [first] = holders
  const named = holders.slice(0, MOST_NAMED)
  const left = info.leases.length - named.reduce((sum, { count }) => sum + count, 0)
  const list = named.map(wordsOf).join(', ') + (left > 0 ? ` and ${left} more` : '')
  const waiters = waitersOf(caller, info, own?.waiting ?? 0)
  const others = waiters === 1 ? '; 1 other waits' : `; ${waiters} others wait`
  return {
    words: `held by ${list}${waiters === 0 ? '' : others}`,
    waiters,
    ...(first === undefined || first.name === null ? {} : { holder: first.name }),
    ...(first?.heldFor === undefined ? {} : { heldFor: first.heldFor }),
    ...(holders.some(({ isOwn }) => isOwn) ? { isOwn: true } : {}),
  }
}

/** Returns the holders in the order of their first leases. */
function holdersOf(
  caller: CallingClient,
  { leases, shared }: NonNullable<LockState>,
  fences: readonly number[],
): Holder[] {
  const holders = new Map<string, Holder>()
  for (const { holder: name, fence } of leases) {
    const own = name === caller.name ? ownFence(fence, shared, fences) : undefined
    const isOwn = own !== undefined
    const id = `${isOwn} ${name}`
    const known = holders.get(id)
    if (known !== undefined) known.count++
    // The fences of a quorum come from the clocks of its clients, and from servers that are ahead.
    else holders.set(id, { name, isOwn, count: 1, heldFor: caller.isQuorum ? undefined : ageOf(own ?? fence) })
  }
  return [...holders.values()]
}

/**
 * Returns the fence of the client's own lease if that is the lease with `fence`. The store knows
 * the first fence of an exclusive lease. The client may have passed the lease on with a larger one.
 */
function ownFence(fence: number | null, shared: boolean, fences: readonly number[]): number | undefined {
  if (fence === null) return undefined
  return fences.find((own) => (shared ? own === fence : own >= fence))
}

/**
 * Returns how long ago the lease with `fence` was granted, in ms; `undefined` if that is not known.
 * The fence is the store's time in µs at the grant, unless the last fence was larger. The last
 * fence is larger if the clock was set back. Then fences are ahead of the clock until the clock has
 * caught up.
 */
function ageOf(fence: number | null): number | undefined {
  if (fence === null) return undefined
  const age = Math.round(wallNow() - fence / 1_000)
  return age < -AHEAD ? undefined : Math.max(age, 0)
}

/**
 * Returns how many calls are known to wait. All calls of this client that wait for an exclusive
 * lease are one waiter at the store.
 */
function waitersOf({ name }: CallingClient, { waiters }: NonNullable<LockState>, waiting: number): number {
  const ours = waiters.filter(({ holder }) => holder === name).length
  return waiters.length - ours + Math.max(ours, waiting)
}

/** Returns words such as `"web-1:4711" for 4.2 s`. */
function wordsOf({ name, isOwn, count, heldFor }: Holder): string {
  const who = name === null ? 'a client of another library' : nameOf(name, isOwn)
  const times = count > 1 ? ` ${count} times` : ''
  if (heldFor === undefined) return `${who}${times}`
  const time = heldFor < 1 ? 'less than 1 ms' : formatDuration(heldFor)
  return `${who}${times} for ${count > 1 ? 'up to ' : ''}${time}`
}

function nameOf(name: string, isOwn: boolean): string {
  return isOwn ? `this client (${quote(name)})` : quote(name)
}
