// Adds one listener to an AbortSignal for all calls that wait under it. Node reports the eleventh
// listener of a signal as a leak, and a signal that lives as long as the server must not collect
// listeners.

import { throwUncaught } from './uncaught'

export const onAbort: unique symbol = Symbol('leasehold.onAbort')

export interface Abortable {
  /** Called when the signal aborts. Runs no code of the user. */
  [onAbort](signal: AbortSignal): void
}

interface AbortListener {
  readonly waiting: Set<Abortable>
  readonly listener: () => void
}

/** Has no prototype, because other code may have put a `signal` on `Object.prototype`. */
const ONCE: { once: boolean } = Object.assign(Object.create(null), { once: true })

const listeners = new WeakMap<AbortSignal, AbortListener>()

/**
 * Calls `waiter` when `signal` aborts, until {@link removeAbortable} is called. Throws what the
 * signal throws.
 */
export function addAbortable(signal: AbortSignal, waiter: Abortable): void {
  const known = listeners.get(signal)
  if (known !== undefined) {
    known.waiting.add(waiter)
    return
  }
  const waiting = new Set([waiter])
  const listener = () => {
    listeners.delete(signal)
    for (const each of waiting) each[onAbort](signal)
  }
  listeners.set(signal, { waiting, listener })
  try {
    signal.addEventListener('abort', listener, ONCE)
  } catch (error) {
    // Later calls must not rely on a listener that the signal does not have.
    listeners.delete(signal)
    throw error
  }
}

/** Undoes {@link addAbortable}. Removes the listener of the signal with the last waiter. */
export function removeAbortable(signal: AbortSignal, waiter: Abortable): void {
  const known = listeners.get(signal)
  if (known === undefined || !known.waiting.delete(waiter) || known.waiting.size > 0) return
  listeners.delete(signal)
  try {
    signal.removeEventListener('abort', known.listener)
  } catch (error) {
    // The signal is an object of the user. Its mistake must not keep a call from settling.
    throwUncaught(error)
  }
}
