// Reads the options of a request's lock, and what its key function returns. Checks the options when
// a server is set up, so that a mistake does not wait for the first request.

import type * as api from '../../../index'
import type { RequestLockOptions } from '../../../types/http'
import { foreignClient } from '../../client/store/foreign-client'
import { parseAcquire } from '../../lock/acquire-options'
import { lockRequest } from '../../lock/lock-request'
import {
  badType,
  badValue,
  checkBoolean,
  checkFunction,
  checkKey,
  checkKeys,
  checkNumber,
  copyOf,
  MAX_MS,
  readOptions,
} from '../../util/arguments'

const ACQUIRE = ['ttl', 'wait', 'failFast', 'retry', 'maxHold'] as const satisfies (keyof RequestLockOptions)[]
const CALLBACKS = ['onBusy', 'onUnavailable', 'onInvalid'] as const
const OPTIONS = ['key', 'until', 'optional', 'maxKeys', ...ACQUIRE, ...CALLBACKS] as const
/**
 * The most keys of a request. If this is larger, one request could stop many others, because it
 * waits for each key in turn; if it is smaller, a request can lock fewer things.
 */
const MOST_KEYS = 1_000

/** The options that both kinds of servers take. */
type Options = RequestLockOptions & Partial<Record<(typeof OPTIONS)[number], unknown>>

/** Throws unless `given` is a lock client. `caller` names the function that got it. */
export function checkLocks(given: unknown, caller: string): asserts given is api.LockClient {
  const { withLock, inspect } = Object(given) as Partial<api.LockClient>
  const like = typeof withLock === 'function' && typeof inspect === 'function'
  if (like) return
  const { key } = Object(given) as Partial<Options>
  const foreign = foreignClient(given)?.what
  const received = foreign ?? (key === undefined ? undefined : 'options: the client comes before them')
  throw badType('locks', `the client that createLockClient() returns: ${caller}(locks, { key: … }, …)`, given, received)
}

/** Says what a key function may return. */
export interface KeyRules {
  /** Whether a request may need no lock. */
  readonly optional: boolean
  /** How many keys a request may lock. If larger than 1, the function may return an array. */
  readonly maxKeys: number
}

/** The checked options: all of them, those that acquire() takes, and the rules of the keys. */
export interface Parsed<T> {
  readonly options: T
  readonly acquireOptions: Pick<api.AcquireOptions, (typeof ACQUIRE)[number]>
  readonly rules: KeyRules
}

const KEY_FUNCTION = 'a function that returns the key of a request, such as (request) => request.params.id'

/** Reads the options. `until` is `usual` or `other`, and `usual` by default. */
export function parseRequestLock<T extends object>(given: T, [usual, other]: readonly [string, string]): Parsed<T> {
  const options: Options = readOptions<Options>(given, OPTIONS)
  if (options.key === undefined) throw badType('key', KEY_FUNCTION, undefined)
  checkFunction('key', options.key)
  for (const name of CALLBACKS) if (options[name] !== undefined) checkFunction(name, options[name])
  const { ttl, wait, failFast = true, retry, maxHold, optional = false, maxKeys = 1, until = usual } = options
  if (until !== usual && until !== other) throw badValue(`The "until" option must be "${usual}" or "${other}"`)
  checkBoolean('optional', optional)
  checkNumber('maxKeys', maxKeys, 1, MOST_KEYS, true)
  const acquireOptions = { ttl, wait, failFast, retry, maxHold }
  // Parse the options only to find errors. The client fills in its defaults at each request.
  parseAcquire(acquireOptions, lockRequest(MAX_MS, 0))
  options.until = until
  return { options: options as T, acquireOptions, rules: { optional, maxKeys } }
}

/**
 * Returns the keys to lock, or `undefined` if the request needs no lock. Throws a TypeError or a
 * RangeError if the keys break the rules. A key often comes from the request, and a visitor can
 * leave out a parameter or repeat it.
 */
export function parseKeys(given: unknown, { optional, maxKeys }: KeyRules): string | readonly string[] | undefined {
  if (given === undefined || given === null) {
    if (optional) return undefined
    throw badValue(
      `The request has no key: its key function returned ${given}. Set "optional" if requests without a key need no lock`,
    )
  }
  if (!Array.isArray(given)) {
    // With `maxKeys: 1`, an array is not allowed, so the error must not offer one.
    if (maxKeys === 1) checkKey(given)
    return checkKeys(given)
  }
  if (maxKeys === 1) {
    throw badValue('The request has an array of keys, and only one is allowed. Set "maxKeys" to allow several')
  }
  const keys = copyOf(given)
  if (keys.length > maxKeys) throw badValue(`The request has ${keys.length} keys; "maxKeys" allows ${maxKeys}`)
  // Keep the order and the duplicates: the client sorts the keys.
  checkKeys(keys)
  return keys as string[]
}
