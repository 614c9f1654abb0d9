// Assertions about leases and their errors.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { LockError, LockLostError } from 'leasehold'
import { within } from './clock.mjs'

/**
 * For assert.rejects and assert.throws: checks that an error is a LockLostError with that reason.
 */
export const lost = (reason) => (error) => {
  assert.ok(error instanceof LockLostError && error instanceof LockError, String(error))
  assert.equal(error.code, 'ERR_LOCK_LOST')
  assert.equal(error.name, 'LockLostError')
  assert.equal(error.reason, reason)
  return true
}

/** Resolves when the lease's signal has aborted. */
export async function aborted(lease, timeout) {
  if (!lease.signal.aborted) await within('the abort', once(lease.signal, 'abort'), timeout)
}
