// The signals that shut a server down.

const SIGNALS = ['SIGINT', 'SIGTERM']

/**
 * How long further signals are ignored, in ms. The terminal sends Ctrl-C to all processes, and npm,
 * `node --watch` and ../nightly/cluster.mjs pass it on. If this is smaller, such a second copy ends
 * the server in the middle of its work. If it is larger, a user who presses Ctrl-C twice has to
 * press it once more.
 */
const PASSED_ON_WITHIN = 500

/** Calls `shutDown` on the first signal. A signal over 0.5 s later ends the process at once. */
export function shutDownOnSignal(shutDown) {
  let hasBegun = false
  const listener = (signal) => {
    if (hasBegun) return
    hasBegun = true
    setTimeout(() => {
      for (const each of SIGNALS) process.off(each, listener)
    }, PASSED_ON_WITHIN).unref()
    shutDown(signal)
  }
  for (const signal of SIGNALS) process.on(signal, listener)
}
