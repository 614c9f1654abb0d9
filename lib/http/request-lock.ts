// What the key function and the options of a request's lock say. The options are checked when a server is put together rather
// than at its first request.

import type * as api from '../../index'
import type { RequestLockOptions } from '../../types/http'
import {
  badType,
  badValue,
  checkBoolean,
  checkFunction,
  checkKeys,
  checkNumber,
  copyOf,
  MAX_MS,
  readOptions,
} from '../arguments'
import { asking, parseAcquire } from '../options'

const ACQUIRE = ['ttl', 'wait', 'retry', 'maxHold'] as const satisfies (keyof RequestLockOptions)[]
const CALLBACKS = ['onBusy', 'onUnavailable', 'onInvalid'] as const
const OPTIONS = ['key', 'until', 'optional', 'maxKeys', ...ACQUIRE, ...CALLBACKS] as const
/** A lock for each key, and each waits for its turn: more would let one request stop many others. */
const MOST_KEYS = 1_000

/** What both kinds of servers take. */
type Options = RequestLockOptions & Partial<Record<(typeof OPTIONS)[number], unknown>>

export function checkLocks(given: unknown): asserts given is api.LockClient {
  const { withLock, inspect } = Object(given) as Partial<api.LockClient>
  const like = typeof withLock === 'function' && typeof inspect === 'function'
  if (!like) throw badType('locks', 'a lock client', given)
}

/** What may come of a key function. */
export interface KeyRules {
  /** Whether a request may need no lock. */
  readonly optional: boolean
  /** With more than 1, the function may say an array. */
  readonly maxKeys: number
}

/** The checked options, of type `T`: all of them, those that acquire() takes, and the rules of the keys. */
export interface Parsed<T> {
  readonly options: T
  readonly asked: Pick<api.AcquireOptions, (typeof ACQUIRE)[number]>
  readonly rules: KeyRules
}

/** Reads the options. `until` may be one of these, the first by default. */
export function parseRequestLock<T extends object>(given: T, [usual, other]: readonly [string, string]): Parsed<T> {
  const options: Options = readOptions<Options>(given, OPTIONS)
  checkFunction('key', options.key)
  for (const name of CALLBACKS) if (options[name] !== undefined) checkFunction(name, options[name])
  const { ttl, wait, retry, maxHold, optional = false, maxKeys = 1, until = usual } = options
  if (until !== usual && until !== other) throw badValue(`The "until" option must be "${usual}" or "${other}"`)
  checkBoolean('optional', optional)
  checkNumber('maxKeys', maxKeys, 1, MOST_KEYS, true)
  const asked = { ttl, wait, retry, maxHold }
  // For what it throws. Only the client knows its defaults, and fills them in at each request.
  parseAcquire(asked, asking(MAX_MS, 0))
  options.until = until
  return { options: options as T, asked, rules: { optional, maxKeys } }
}

/**
 * Returns what the key function said, as far as that may be locked; `undefined` if the request needs no lock. Throws a TypeError or
 * a RangeError otherwise. A key often comes from the request, in which a visitor can leave out a parameter, or repeat it.
 */
export function parseKeys(given: unknown, { optional, maxKeys }: KeyRules): string | readonly string[] | undefined {
  if (given === undefined || given === null) {
    if (optional) return undefined
    throw badValue(
      'The request has no key: its key function said none. Set "optional" if requests without a key need no lock',
    )
  }
  if (!Array.isArray(given)) return checkKeys(given)
  if (maxKeys === 1) {
    throw badValue('The request has an array of keys, and only one is allowed. Set "maxKeys" to allow several')
  }
  const keys = copyOf(given)
  if (keys.length > maxKeys) throw badValue(`The request has ${keys.length} keys; "maxKeys" allows ${maxKeys}`)
  // In the order and the number in which they came: the client sorts them.
  checkKeys(keys)
  return keys as string[]
}
