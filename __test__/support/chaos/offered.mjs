// Whether a kind of store is there yet.

import { createLockClient } from 'leasehold'

/**
 * Why tests over the store can't run: false if they can. A store that is refused for any other reason than that it
 * isn't built yet is no reason: its tests then fail.
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
