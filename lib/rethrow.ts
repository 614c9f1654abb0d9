// Read it at load time: with a fake clock that stands still, the error would be lost.
const { nextTick } = process

/**
 * Throws an error of the user's own listener where Node looks for it: as an uncaught exception, neither swallowed
 * nor in the way of what else has to be told.
 */
export function rethrow(error: unknown): void {
  nextTick(() => {
    throw error
  })
}

/** Calls a user's listeners; what they throw is {@link rethrow}n. */
export function guarded(call: () => void): void {
  try {
    call()
  } catch (error) {
    rethrow(error)
  }
}
