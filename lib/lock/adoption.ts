// Adopts detached leases, and says why a ticket can't be adopted.

import { isLockError, type LockLostError, notAdoptedError } from '../diagnostics/errors'
import { slots } from '../native/slots'
import { Lease } from './lease'
import { statusFor } from './lease-methods'
import type { LeaseOwner } from './lease-owner'
import type { LockRequest } from './lock-request'
import type { Ticket } from './ticket'

/** The tokens of the tickets by which clients adopted these leases. */
const tokens = new WeakMap<Lease, string>()

/** Resolves with the lease that was detached into `ticket`. */
export async function adopt(owner: LeaseOwner, ticket: Ticket, request: LockRequest): Promise<Lease> {
  try {
    const lease = await Lease.adopt(owner, ticket, request)
    tokens.set(lease, ticket.token)
    return lease
  } catch (error) {
    const { code, reason } = error as LockLostError
    const isRefused = isLockError(error) && code === 'ERR_LOCK_LOST' && (reason === 'taken' || reason === 'missing')
    if (!isRefused) throw error
    throw notAdoptedError(ticket.key, reason, owner.identity.store, isHeldBy(owner, ticket))
  }
}

/** Returns whether the client itself holds the lease that it adopted by this ticket. */
function isHeldBy({ id }: LeaseOwner, { token }: Ticket): boolean {
  return slots.some((lease) => lease instanceof Lease && tokens.get(lease) === token && lease[statusFor](id) === 'held')
}
