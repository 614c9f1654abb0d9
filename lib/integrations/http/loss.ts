// Tells whether a request has lost all its leases, and waits for that.

import type * as api from '../../../index'
import type { LockLostError } from '../../diagnostics/errors'

type AnyLease = api.Lease | api.MultiLease

/** Returns true if all leases are lost, so that nothing is left to hold. */
export function isLost(held: AnyLease): boolean {
  return leasesOf(held).every(({ signal }) => isLoss(signal))
}

/** Resolves when all leases are lost; never if one of them is lost as `closed`: see isLoss(). */
export async function lossOf(held: AnyLease): Promise<void> {
  await Promise.all(leasesOf(held).map(({ signal }) => loss(signal)))
}

/** Returns the longest ttl of the leases, in ms. */
export function ttlOf(held: AnyLease): number {
  return Math.max(...leasesOf(held).map(({ ttl }) => ttl))
}

function leasesOf(held: AnyLease): readonly api.Lease[] {
  return 'leases' in held ? held.leases : [held]
}

/**
 * Returns whether the signal of a lease reports a loss. Returns false for reason `closed`: that
 * lease is no longer renewed, but the store keeps it until its ttl ends.
 */
export function isLoss({ aborted, reason }: AbortSignal): boolean {
  return aborted && (reason as LockLostError).reason !== 'closed'
}

function loss(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (isLoss(signal)) resolve()
    }
    if (signal.aborted) check()
    else signal.addEventListener('abort', check, { once: true })
  })
}
