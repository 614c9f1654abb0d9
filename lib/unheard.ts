// Warns of an error that no 'error' listener received. The library must not throw it, because that
// would end the process, and silence would hide that nothing works.

import { printable } from './printable'
import { ignore } from './promise'
import { asError } from './thrown'
import { withoutLogins } from './without-logins'

/** The code of the warning: see LockClientEvents in types/client.d.ts. */
const CODE = 'LEASEHOLD_UNHEARD_ERROR'

/**
 * The most characters of a line, and of an error's stack, that a warning shows. If these are
 * larger, one error can fill a log; if they are smaller, the cause may be cut off.
 */
const [MOST_OF_LINE, MOST_OF_STACK] = [500, 4_000]

class LeaseholdWarning extends Error {
  readonly code = CODE
  /** Node prints this below the message. */
  readonly detail: string | undefined

  constructor(message: string, error: Error) {
    super(message, { cause: error })
    this.detail = stackOf(error)
  }
}

Object.defineProperty(LeaseholdWarning.prototype, 'name', { value: 'LeaseholdWarning', configurable: true })

/** Describes an emitter, and what failed. */
export interface Unheard {
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
export function warnOnce(emitter: object, error: unknown, describe: () => Unheard): void {
  if (warned.has(emitter)) return
  warned.add(emitter)
  warn(asError(error), describe).catch(ignore)
}

/** Rejects if `process.emitWarning` fails: other code may have replaced it. */
async function warn(error: Error, describe: () => Unheard): Promise<void> {
  const { who, event = 'error', remedy, what } = describe()
  const message =
    `The ${printable(who, MOST_OF_LINE)} has no '${event}' listener: add ${remedy}. Without one, only its first error is shown: ` +
    `${what === undefined ? '' : `${what}: `}${messageOf(error)}`
  await process.emitWarning(new LeaseholdWarning(message, error))
}

function messageOf(error: Error): string {
  try {
    return printable(withoutLogins(`${error.name}: ${error.message}`), MOST_OF_LINE)
  } catch {
    // A getter of the error throws.
    return 'an error without a readable message'
  }
}

function stackOf(error: Error): string | undefined {
  try {
    const lines = withoutLogins(error.stack ?? '')
      .slice(0, MOST_OF_STACK)
      .split('\n')
    return lines.map((line) => printable(line, MOST_OF_LINE)).join('\n') || undefined
  } catch {
    return undefined
  }
}
