// Who waits under which AbortSignal. One listener per signal, however many wait: Node would take the eleventh for a leak,
// and a signal that lives as long as the server must not collect listeners.

export const onAbort: unique symbol = Symbol('leasehold.onAbort')

export interface Abortable {
  /** The signal was aborted. Runs no code of the user. */
  [onAbort](signal: AbortSignal): void
}

interface Watch {
  readonly waiting: Set<Abortable>
  readonly listener: () => void
}

/** Has no prototype, because other code may have put a `signal` on `Object.prototype`. */
const ONCE: { once: boolean } = Object.assign(Object.create(null), { once: true })

const watches = new WeakMap<AbortSignal, Watch>()

export function watch(signal: AbortSignal, who: Abortable): void {
  const known = watches.get(signal)
  if (known !== undefined) {
    known.waiting.add(who)
    return
  }
  const waiting = new Set([who])
  const listener = () => {
    watches.delete(signal)
    for (const each of waiting) each[onAbort](signal)
  }
  watches.set(signal, { waiting, listener })
  signal.addEventListener('abort', listener, ONCE)
}

export function unwatch(signal: AbortSignal, who: Abortable): void {
  const known = watches.get(signal)
  if (known === undefined || !known.waiting.delete(who) || known.waiting.size > 0) return
  watches.delete(signal)
  signal.removeEventListener('abort', known.listener)
}
