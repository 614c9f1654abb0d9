// Reads the keys of requests, and warns once if a key function returns a value of the wrong type.

import { FirstWarning } from './first-warning'
import { type KeyRules, parseKeys } from './request-lock'
import { requestName } from './request-name'

const KIND = { code: 'LEASEHOLD_INVALID_KEY', status: 400, option: 'onInvalid' }

/** Says why a request has no valid keys. */
type KeyError = TypeError | RangeError

/** Reads the keys of one middleware's requests. */
export class KeyReader {
  readonly #rules: KeyRules
  readonly #first: FirstWarning

  /**
   * Reads keys for a middleware of this name. `isHeard` says whether the middleware has an
   * `onInvalid` callback, which gets each error.
   */
  constructor(rules: KeyRules, middleware: string, isHeard: boolean) {
    this.#rules = rules
    this.#first = new FirstWarning(KIND, middleware, isHeard)
  }

  /** Returns what {@link parseKeys} returns for the keys of `request`. Throws what it throws. */
  read(given: unknown, request: unknown): string | readonly string[] | undefined {
    try {
      return parseKeys(given, this.#rules)
    } catch (error) {
      // Such messages name types, and never the visitor's value.
      if (this.#isAboutType(given, error as KeyError)) {
        this.#first.warn(error as KeyError, requestName(request))
      }
      throw error
    }
  }

  /**
   * Returns whether the type is wrong, and not only the value, such as an empty string. Visitors
   * choose values, and an odd value must not use up the only warning.
   */
  #isAboutType(given: unknown, error: KeyError): boolean {
    if (given === undefined || given === null) return true
    return (
      (error as NodeJS.ErrnoException).code === 'ERR_INVALID_ARG_TYPE' ||
      (Array.isArray(given) && this.#rules.maxKeys === 1)
    )
  }
}
