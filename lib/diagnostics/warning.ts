// Process warnings of this library. Node prints them, with their code.

import { ignore } from '../util/deferred'
import { printable } from '../util/printable'
import { withoutLogins } from '../util/without-logins'

/**
 * The most characters of a line, and of an error's stack, that a warning shows. If these are
 * larger, one error can fill a log; if they are smaller, the cause may be cut off.
 */
export const MOST_OF_LINE = 500
const MOST_OF_STACK = 4_000

class LeaseholdWarning extends Error {
  readonly code: string
  /** Node prints this below the message. */
  readonly detail: string | undefined

  constructor(code: string, message: string, error: Error | undefined, detail: string | undefined) {
    super(message, error && { cause: error })
    this.code = code
    this.detail = detail
    // A stack shows ten calls. Leave out those of this file, so that the user's calls have room.
    Error.captureStackTrace?.(this, emitWarning)
  }
}

Object.defineProperty(LeaseholdWarning.prototype, 'name', { value: 'LeaseholdWarning', configurable: true })

/**
 * Emits a warning with this code and the text that `describe` returns. Its cause is `error`, if
 * there is one. Never throws.
 */
export function emitWarning(
  code: string,
  error: Error | undefined,
  describe: () => string,
  { stack = false } = {},
): void {
  emit(code, error, describe, stack).catch(ignore)
}

/** Rejects if `process.emitWarning` fails: other code may have replaced it. */
async function emit(code: string, error: Error | undefined, describe: () => string, stack: boolean): Promise<void> {
  const detail = stack && error ? stackOf(error) : undefined
  await process.emitWarning(new LeaseholdWarning(code, describe(), error, detail))
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
