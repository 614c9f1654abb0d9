// Finds the leases of a client among all leases of this thread.

import type { OwnLeases } from '../diagnostics/contention'
import { slots } from '../native/slots'
import { Lease } from './lease'
import { endAdoption, letExpire, statusFor } from './lease-methods'

/** Returns what a client itself knows about the locks `keys` that it holds or waits for. */
export function ownLeasesOf(client: number, keys: ReadonlySet<string>): ReadonlyMap<string, OwnLeases> {
  const known = new Map<string, { fences: number[]; waiting: number }>()
  for (const lease of slots) {
    if (!(lease instanceof Lease) || !keys.has(lease.key)) continue
    const status = lease[statusFor](client)
    if (status === undefined) continue
    const own = known.get(lease.key) ?? { fences: [], waiting: 0 }
    known.set(lease.key, own)
    if (status === 'waiting') own.waiting++
    else if (status === 'held') own.fences.push(lease.fence)
  }
  return known
}

/**
 * Stops renewing all leases that a client still holds. Each then ends by its ttl, or when its
 * section releases it.
 */
export function letLeasesExpire(client: number): void {
  for (const lease of slots) {
    if (lease instanceof Lease && lease[statusFor](client) !== undefined) lease[letExpire]()
  }
}

/**
 * Rejects the pending adoptions of a client that closes. A lease that the client has adopted and
 * has not handed to its caller goes back to its ticket.
 */
export function endAdoptions(client: number): void {
  for (const lease of slots) {
    if (lease instanceof Lease) lease[endAdoption](client)
  }
}
