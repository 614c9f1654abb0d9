// What is done when the process, or this thread of it, ends: leases are released (the orderly ends; native code has
// the others).

import { constants } from 'node:os'
import { badType, badValue } from './arguments'
import { bridge } from './native'

/** How long an exit may be held up. What could not be released by then ends by its ttl. */
const PATIENCE = 500

/** Once for each environment. Also after an uncaught exception and process.exit(), both of which reach 'exit'. */
export function releaseOnExit(): void {
  process.on('exit', () => bridge.releaseAll(PATIENCE))
}

export function checkSignalNames(given: unknown): asserts given is NodeJS.Signals[] {
  if (!Array.isArray(given)) throw badType('releaseOnSignal', 'an array of signal names', given)
  for (const name of given) {
    if (typeof name !== 'string') throw badType('releaseOnSignal', 'an array of signal names', name)
    if (!Object.hasOwn(constants.signals, name))
      throw badValue(`"releaseOnSignal": no such signal: ${name.slice(0, 40)}`)
    if (name === 'SIGKILL' || name === 'SIGSTOP') throw badValue(`"releaseOnSignal": nobody can listen to ${name}`)
  }
}

interface Closable {
  close(): Promise<void>
}

/** Whether clients are draining after a first signal. */
let isDraining = false

/** The clients that a signal closes, and the one listener that does it. */
class Watch {
  readonly clients = new Set<Closable>()
  readonly #signal: NodeJS.Signals

  constructor(signal: NodeJS.Signals) {
    this.#signal = signal
    // First, so that it still finds the listeners that process.once() takes away as it calls them.
    process.prependListener(signal, this.#listener)
  }

  end(): void {
    process.off(this.#signal, this.#listener)
    if (watches.get(this.#signal) === this) watches.delete(this.#signal)
  }

  /** Closes all clients, also those that join meanwhile. */
  async #drain(): Promise<void> {
    const closed = new Set<Closable>()
    for (;;) {
      const open = [...this.clients].filter((client) => !closed.has(client))
      if (open.length === 0) return
      for (const client of open) closed.add(client)
      await Promise.all(open.map((client) => client.close()))
    }
  }

  readonly #listener = async (): Promise<void> => {
    // If there is another listener, it decides whether the process ends.
    const alone = process.listenerCount(this.#signal) === 1
    // A second signal ends the process at once.
    if (!(isDraining && alone)) {
      isDraining = true
      await this.#drain()
      isDraining = false
      if (this.clients.size === 0) this.end()
      if (!alone) return
    }
    this.end()
    process.kill(process.pid, this.#signal)
  }
}

const watches = new Map<NodeJS.Signals, Watch>()

export function closeOnSignals(client: Closable, signals: readonly NodeJS.Signals[]): void {
  for (const signal of signals) {
    let watch = watches.get(signal)
    if (watch === undefined) {
      watch = new Watch(signal)
      watches.set(signal, watch)
    }
    watch.clients.add(client)
  }
}

export function forgetSignals(client: Closable): void {
  for (const watch of watches.values()) {
    if (watch.clients.delete(client) && watch.clients.size === 0 && !isDraining) watch.end()
  }
}
