// Read nextTick() at load time: a fake clock that stands still would never throw the error.
const { nextTick } = process

/**
 * Throws an error of the user's listener as an uncaught exception. The library goes on with the
 * other listeners.
 */
export function throwUncaught(error: unknown): void {
  nextTick(() => {
    throw error
  })
}

/** Calls the user's listeners. Passes what they throw to {@link throwUncaught}. */
export function callListener(call: () => void): void {
  try {
    call()
  } catch (error) {
    throwUncaught(error)
  }
}
