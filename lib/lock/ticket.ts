// Reads and writes tickets: the strings in which a detached lease goes from one process to another.

import { Most } from '../native/protocol'
import { badType, badValue, checkKey, MAX_MS, MIN_TTL } from '../util/arguments'

const VERSION = 1
/** The longest ticket, in characters: a key of 1024 bytes that is fully escaped needs less. */
const LONGEST = 16_384
/**
 * The latest wall clock that fences follow, in µs since 1970: `Fence::LATEST_WALL_US` in native
 * code, the beginning of the year 2200.
 */
const LATEST_WALL_US = 7_258_118_400_000_000
/**
 * The largest fence that a ticket may have: one year above {@link LATEST_WALL_US}, because fences
 * still grow after a store whose clock was that late. If this is smaller, a ticket with a real
 * fence may be refused. The store knows the fence better: see `src/store/adopted_lease.rs`.
 */
const LARGEST_FENCE = LATEST_WALL_US + 31_557_600_000_000

/** The contents of a ticket. */
export interface Ticket {
  readonly key: string
  /** The secret that proves ownership: a process that knows it owns the lease. */
  readonly token: string
  readonly fence: number
  readonly ttl: number
  /** See {@link Most}, and {@link adoptedMost}. */
  readonly most: number
}

/**
 * Returns how many clients may hold the lock of an adopted lease; `said` is the number in its
 * ticket. The store knows whether the lease is shared, but not how many clients may share it.
 */
export function adoptedMost(said: number, isShared: boolean): number {
  if (!isShared) return Most.Exclusive
  return said === Most.Exclusive ? Most.Readers : said
}

export function writeTicket({ key, token, fence, ttl, most }: Ticket): string {
  return Buffer.from(JSON.stringify({ v: VERSION, key, token, fence, ttl, most })).toString('base64url')
}

/** Throws a TypeError that shows no part of the ticket, because each part is a secret. */
export function readTicket(given: unknown): Ticket {
  if (typeof given !== 'string') throw badType('ticket', 'the string that lease.detach() resolves with', given)
  const fields = given.length <= LONGEST ? fieldsOf(given) : undefined
  if (fields === undefined) throw malformed()
  if (fields.v !== VERSION) throw badValue('The "ticket" argument is a ticket of another version of leasehold')
  const { key, token, fence, ttl, most } = fields
  try {
    checkKey(key)
  } catch {
    throw malformed()
  }
  if (typeof token !== 'string' || !/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(token)) throw malformed()
  if (!isWhole(fence, 1, LARGEST_FENCE)) throw malformed()
  if (!isWhole(ttl, MIN_TTL, MAX_MS) || !isWhole(most, Most.Exclusive, Most.Readers)) throw malformed()
  return { key, token, fence, ttl, most }
}

function fieldsOf(ticket: string): Record<string, unknown> | undefined {
  // Node skips characters that are not base64url. A ticket has none of them.
  if (!/^[\w-]+$/.test(ticket)) return undefined
  try {
    const fields: unknown = JSON.parse(Buffer.from(ticket, 'base64url').toString())
    return typeof fields === 'object' && fields !== null && 'v' in fields ? { ...fields } : undefined
  } catch {
    return undefined
  }
}

function isWhole(given: unknown, min: number, max: number): given is number {
  return Number.isInteger(given) && (given as number) >= min && (given as number) <= max
}

function malformed(): TypeError {
  return badValue('The "ticket" argument must be a ticket that detach() made, whole and unchanged')
}
