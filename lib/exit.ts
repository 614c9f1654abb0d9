// What is done when the process, or this thread of it, ends: leases are released (the orderly ends; native code has
// the others).

import { constants } from 'node:os'
import { badType, badValue } from './arguments'
import { bridge } from './native'

// Taken when this is loaded: with a fake clock that stands still, the exit could take longer.
const now = performance.now.bind(performance)

/** How long all copies together may delay the exit, in ms. Other leases end by their ttl. */
const PATIENCE = 500

type Release = (patience: number) => void

/**
 * The global property with the functions that release all leases at the exit, one function for each
 * loaded copy of this version. Test runners load a package again and again: with a listener for each
 * copy, Node would soon warn of a leak.
 */
const SHARED = Symbol.for(`leasehold.exit@${require('../package.json').version}`)

/**
 * Releases the leases of this copy when its thread exits. Call it once for each bridge. The listener
 * also runs after an uncaught exception and after process.exit().
 */
export function releaseOnExit(): void {
  const release: Release = (patience) => bridge.releaseAll(patience)
  const world = globalThis as { [SHARED]?: Set<Release> }
  if (world[SHARED] !== undefined) {
    world[SHARED].add(release)
    return
  }
  const releases = new Set([release])
  // If the global object is frozen, this returns false and throws nothing.
  Reflect.defineProperty(globalThis, SHARED, { value: releases, configurable: true })
  process.on('exit', () => releaseAll(releases))
}

function releaseAll(releases: Iterable<Release>): void {
  const end = now() + PATIENCE
  for (const release of releases) release(Math.max(0, end - now()))
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
