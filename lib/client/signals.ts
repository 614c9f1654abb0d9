// The option `releaseOnSignal`: a signal closes clients, and then ends the process.

import { constants } from 'node:os'
import { badType, badValue, copyOf } from '../util/arguments'
import { now } from '../util/clock'
import { singleton } from '../util/singleton'

/**
 * The signals that end no process: by default, the system ignores them, or they stop or continue a
 * process. After one of them, the process would run on with its clients closed. On Linux, SIGIO
 * ends a process.
 */
const NOT_ENDING = new Set(['SIGCHLD', 'SIGCONT', 'SIGINFO', 'SIGTSTP', 'SIGTTIN', 'SIGTTOU', 'SIGURG', 'SIGWINCH'])
if (process.platform !== 'linux') NOT_ENDING.add('SIGIO')

/**
 * Returns a copy of `given`. Throws unless it lists signals that a process can listen to and that
 * end a process by default.
 */
export function parseSignalNames(given: unknown): NodeJS.Signals[] {
  if (!Array.isArray(given)) throw badType('releaseOnSignal', "an array of signal names, such as ['SIGTERM']", given)
  const names = copyOf(given)
  for (const name of names) {
    if (typeof name !== 'string') throw badType('releaseOnSignal', 'an array of signal names', name)
    if (!Object.hasOwn(constants.signals, name))
      throw badValue('"releaseOnSignal" has a name that is not a signal on this system; give names such as SIGTERM')
    if (name === 'SIGKILL' || name === 'SIGSTOP')
      throw badValue(`"releaseOnSignal": no process can listen to ${name}; leave it out`)
    if (NOT_ENDING.has(name))
      throw badValue(
        `"releaseOnSignal": ${name} ends no process by default; give signals such as SIGTERM, SIGINT or SIGHUP`,
      )
  }
  return names as NodeJS.Signals[]
}

/**
 * How long after the first signal further signals are ignored, in ms. Some parents (npm, `node
 * --watch`) forward a signal that the whole process group has got already. If this is smaller, such
 * a second copy of the signal ends the process in the middle of its work. If it is larger, a user
 * who presses Ctrl-C twice has to press it once more.
 */
const FORWARDED_WITHIN = 500

interface Closable {
  close(): Promise<void>
}

/** Marks the listeners of all versions of this library. */
const OURS = Symbol.for('leasehold.releaseOnSignal')

const isOurs = (listener: object): boolean => OURS in listener

/** The emitter of the package `signal-exit`. `count` is the number of its listeners to a signal. */
type SignalExit = { readonly count?: number } | undefined

/**
 * Returns how many of the listeners to a signal are from the package `signal-exit` (versions 3 and
 * 4), on which many packages depend. `signal-exit` ends the process only if there are no other
 * listeners. If this library counted those of `signal-exit`, neither of the two would end the
 * process.
 */
function countSignalExit(): number {
  const current = Reflect.get(globalThis, Symbol.for('signal-exit emitter')) as SignalExit
  const former = Reflect.get(process, '__signal_exit_emitter__') as SignalExit
  return (current?.count ?? 0) + (former?.count ?? 0)
}

/** Listens to one signal, and closes clients when it arrives. */
class SignalListener {
  readonly clients = new Set<Closable>()
  readonly #signal: NodeJS.Signals
  /** Whether another listener was removed just now, perhaps because the signal has arrived. */
  #hasSeenRemoval = false

  constructor(signal: NodeJS.Signals) {
    this.#signal = signal
    Object.defineProperty(this.#listener, OURS, { value: true })
  }

  /** Adds the listener, also if other code has removed all listeners since the last call. */
  begin(): void {
    watchRemovals()
    if (process.listeners(this.#signal).includes(this.#listener)) return
    // Prepend the listener: it counts the others, and process.once() removes its own listeners as
    // it calls them.
    process.prependListener(this.#signal, this.#listener)
  }

  end(): void {
    process.off(this.#signal, this.#listener)
    if (shared.listeners.get(this.#signal) === this) shared.listeners.delete(this.#signal)
    if (shared.listeners.size === 0 && shared.onRemoval !== undefined) {
      process.off('removeListener', shared.onRemoval)
      shared.onRemoval = undefined
    }
  }

  /** Returns whether there is no other listener that decides when the process ends. */
  #isAlone(): boolean {
    const others = process.listeners(this.#signal).filter((listener) => !isOurs(listener))
    return others.length + Number(this.#hasSeenRemoval) <= countSignalExit()
  }

  /**
   * Notes that another listener was removed. A listener that `prependOnceListener()` has put before
   * this one is removed as it is called, in the same turn of the event loop.
   */
  noteRemoval(listener: object): void {
    if (isOurs(listener)) return
    this.#hasSeenRemoval = true
    // Do not use queueMicrotask(): fake clocks replace it.
    Promise.resolve().then(() => {
      this.#hasSeenRemoval = false
    })
  }

  /** Closes all clients, also those that are added while this runs. */
  async drain(): Promise<void> {
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
    const alone = this.#isAlone()
    if (alone && shared.drain !== undefined) {
      // A second signal ends the process before the drain is over.
      if (now() - shared.drain.since >= FORWARDED_WITHIN) return this.endProcess()
      // Another listener may have raised this signal, to end the process.
      shared.drain.raised ??= this
      return
    }
    shared.drain ??= { since: now(), raised: undefined }
    const { drain } = shared
    await this.drain()
    const last = alone ? this : drain.raised
    if (last !== this) await last?.drain()
    shared.drain = undefined
    if (this.clients.size === 0) this.end()
    last?.endProcess()
  }

  /** Ends the process by the signal, unless other code listens to it. */
  endProcess(): void {
    this.end()
    // The clients of another version of this library still drain. The last version ends the
    // process.
    if (process.listeners(this.#signal).some(isOurs)) return
    process.kill(process.pid, this.#signal)
    // The kernel ignores a signal that the first process of a container sends itself.
    if (process.pid === 1) process.exit(128 + constants.signals[this.#signal])
  }
}

/** A drain of clients after a signal. */
interface Drain {
  /** When the signal arrived. */
  readonly since: number
  /**
   * The listener to the first signal during the drain that no other code heard. That signal ends
   * the process after the drain, even if other code heard the signal that began the drain.
   */
  raised: SignalListener | undefined
}

/**
 * The state that all copies share, so that no copy takes the listener of another copy for the
 * user's.
 */
interface SharedState {
  readonly listeners: Map<NodeJS.Signals, SignalListener>
  /** The drain after the first signal; `undefined` if there is none, or if it is over. */
  drain: Drain | undefined
  /** The listener to `'removeListener'`, which exists while a signal has a listener. */
  onRemoval: ((event: string | symbol, listener: object) => void) | undefined
}

const shared = singleton(
  'signals',
  (): SharedState => ({ listeners: new Map(), drain: undefined, onRemoval: undefined }),
)

/**
 * Listens to the removal of listeners. All signals share one listener: with one for each signal,
 * Node would warn of a leak.
 */
function watchRemovals(): void {
  const known = shared.onRemoval
  const emitter: NodeJS.EventEmitter = process
  if (known !== undefined && emitter.listeners('removeListener').includes(known)) return
  shared.onRemoval = (event, listener) => shared.listeners.get(event as NodeJS.Signals)?.noteRemoval(listener)
  emitter.on('removeListener', shared.onRemoval)
}

/** Closes `client` when one of `signals` arrives, until {@link forgetSignals} is called. */
export function closeOnSignals(client: Closable, signals: readonly NodeJS.Signals[]): void {
  for (const signal of signals) {
    let listener = shared.listeners.get(signal)
    if (listener === undefined) {
      listener = new SignalListener(signal)
      shared.listeners.set(signal, listener)
    }
    listener.clients.add(client)
    listener.begin()
  }
}

/** Undoes {@link closeOnSignals}. */
export function forgetSignals(client: Closable): void {
  for (const listener of shared.listeners.values()) {
    if (listener.clients.delete(client) && listener.clients.size === 0 && shared.drain === undefined) listener.end()
  }
}
