// Tells whether a kind of store is implemented yet.

import { createLockClient } from 'leasehold'

/**
 * Returns why tests of the store can't run, or false if they can. If the store is refused for
 * another reason than that it isn't implemented yet, the tests run and fail.
 */
export function notYet(store) {
  try {
    createLockClient(store).close()
    return false
  } catch (error) {
    if (error.code === 'ERR_INVALID_ARG_VALUE' && /\byet\b/.test(error.message)) return error.message
    return false
  }
}
