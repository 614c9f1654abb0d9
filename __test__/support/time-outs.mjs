// Calls that are expected to time out.

import assert from 'node:assert/strict'
import { LockTimeoutError } from 'leasehold'

/** Returns the error with which `call` times out. */
export async function timeout(call) {
  const error = await call.then(
    () => assert.fail('the call got the lock'),
    (error) => error,
  )
  assert.ok(error instanceof LockTimeoutError, error?.stack)
  // The client can't tell a nested call from a concurrent one.
  assert.doesNotMatch(error.message, /reentrant/)
  return error
}

/**
 * Returns the error with which the call that `begin` makes times out, with the holder's name from
 * the store. On a busy machine, the store may not answer in time, so this tries a few times.
 */
export async function named(begin) {
  for (let tries = 1; ; tries++) {
    const error = await timeout(begin())
    if (error.waiters !== undefined) return error
    assert.ok(tries < 5, `the store did not answer in time: ${error.message}`)
  }
}
