// Warns of an error that no 'error' listener received. The library must not throw it, because that
// would end the process, and silence would hide that nothing works.

import { asError } from '../util/as-error'
import { printable } from '../util/printable'
import { withoutLogins } from '../util/without-logins'
import { emitWarning, MOST_OF_LINE } from './warning'

/** The code of the warning: see LockClientEvents in types/client-events.d.ts. */
const CODE = 'LEASEHOLD_UNHEARD_ERROR'

/** Describes an emitter, and what failed. */
export interface EmitterDescription {
  /** Names the emitter: `worker of lock "k"`. */
  readonly who: string
  /** The event that has no listener. Default `error`. */
  readonly event?: string
  /** The call that adds a listener. */
  readonly remedy: string
  /** Says what failed, if the error alone does not: `startWork failed`. */
  readonly what?: string | undefined
}

/** The emitters whose warning was emitted. */
const warned = new WeakSet<object>()

/**
 * Emits a process warning for the first unheard error of `emitter`, and does nothing for its later
 * ones: a worker whose store is down has one every few seconds. Never throws.
 */
export function warnOnce(emitter: object, error: unknown, describe: () => EmitterDescription): void {
  if (warned.has(emitter)) return
  warned.add(emitter)
  const known = asError(error)
  emitWarning(CODE, known, () => warningOf(known, describe()), { stack: true })
}

function warningOf(error: Error, { who, event = 'error', remedy, what }: EmitterDescription): string {
  return (
    `The ${printable(who, MOST_OF_LINE)} has no '${event}' listener: add ${remedy}. Without one, only its first error is shown: ` +
    `${what === undefined ? '' : `${what}: `}${messageOf(error)}`
  )
}

function messageOf(error: Error): string {
  try {
    return printable(withoutLogins(`${error.name}: ${error.message}`), MOST_OF_LINE)
  } catch {
    // A getter of the error throws.
    return 'an error without a readable message'
  }
}
