// Tells when a request has lost all its leases.

import type * as api from '../../index'
import type { LockLostError } from '../errors'

type AnyLease = api.Lease | api.MultiLease

/** Returns true if all leases are lost, so that nothing is left to hold. */
export function isLost(held: AnyLease): boolean {
  return signalsOf(held).every(isLoss)
}

/** Resolves when all leases are lost. */
export async function lossOf(held: AnyLease): Promise<void> {
  await Promise.all(signalsOf(held).map(loss))
}

function signalsOf(held: AnyLease): AbortSignal[] {
  return 'leases' in held ? held.leases.map(({ signal }) => signal) : [held.signal]
}

/**
 * Returns false for reason `closed`: that lease is no longer renewed, but the store keeps it until
 * its ttl ends.
 */
function isLoss({ aborted, reason }: AbortSignal): boolean {
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
