// Warns once if a middleware refuses requests for a reason that the server's owner has to know. The
// visitor's answer tells nothing of it, so the mistake would not show at the server.

import type * as api from '../../../index'
import { isLockError, LockError } from '../../diagnostics/errors'
import { emitWarning } from '../../diagnostics/warning'

/** Describes a kind of refusal. */
interface Kind {
  /** The code of the warning: see docs/servers.md. */
  readonly code: string
  /** The status of the answer. */
  readonly status: number
  /** The option that gets the error of each refused request. */
  readonly option: string
}

/** Warns of the first refusal of a kind by one middleware. */
export class FirstWarning {
  readonly #kind: Kind
  readonly #middleware: string
  /** Whether a warning may still come. */
  #mayWarn: boolean

  /** `isHeard`: whether the middleware has a callback that gets each error. */
  constructor(kind: Kind, middleware: string, isHeard: boolean) {
    this.#kind = kind
    this.#middleware = middleware
    this.#mayWarn = !isHeard
  }

  /**
   * Warns of the first error. `request` names the request that was answered. Neither this name nor
   * the error's message may contain a text that a visitor has chosen.
   */
  warn(error: Error, request = 'a request'): void {
    if (!this.#mayWarn) return
    this.#mayWarn = false
    const { code, status, option } = this.#kind
    const message =
      `${this.#middleware}() answered ${request} with ${status}. ${error.message}. ` +
      `Only the first such request is shown: set "${option}" to get the error of each one`
    emitWarning(code, withoutKey(error), () => message)
  }
}

/**
 * Returns the error without its key, which a visitor has sent. Loggers print the properties of a
 * warning's cause, and some do not escape control characters.
 */
function withoutKey(error: Error): Error {
  if (!isLockError(error) || error.key === undefined) return error
  const { code, message, stack = '', reason } = error as api.LockError & { reason?: string }
  return Object.assign(new LockError(code, message), { stack }, reason === undefined ? {} : { reason })
}
