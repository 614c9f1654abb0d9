// The signals to `leasehold run`. From the start of the wait until this process has ended, there is
// always a listener. Without one, a signal would end this process. Before the release, the lock
// would then stay held for its ttl. After the release, the signal would replace the exit code.

/** The signals that ask leasehold to end while it waits for the lock. */
export const STOPPING: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']
/**
 * The signals that are passed on to the command. Without a listener, SIGUSR1 would make Node open a
 * debugger, and SIGUSR2 would end leasehold.
 */
const PASSED: readonly NodeJS.Signals[] = [...STOPPING, 'SIGUSR1', 'SIGUSR2']

type Listener = (signal: NodeJS.Signals) => void

export class Signals {
  #listener: Listener = () => {}
  readonly #removers: (() => void)[] = []

  constructor() {
    for (const name of PASSED) {
      const heard = () => this.#listener(name)
      try {
        process.on(name, heard)
        this.#removers.push(() => process.off(name, heard))
      } catch {
        // Windows does not have all of these signals.
      }
    }
    // If Node ends because nothing is left to do, it removes the listeners and takes some more ms.
    // process.exit() leaves them in place.
    process.once('beforeExit', () => process.exit())
  }

  /** Calls `listener` for each signal from now on, in the place of an earlier listener. */
  listen(listener: Listener): void {
    this.#listener = listener
  }

  /** Ignores all signals from now on. */
  ignore(): void {
    this.#listener = () => {}
  }

  /** Removes all listeners. From then on, a signal ends this process. */
  remove(): void {
    for (const remove of this.#removers) remove()
  }
}
