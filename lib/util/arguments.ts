// Checks arguments, and makes the errors of bad ones, with Node's codes. The message shows the type
// of an argument and never its value, which may be a URL with a password.

import { types } from 'node:util'
import { nearest } from './nearest'

/** The errors of this file whose messages do not yet name the function that was called. */
const unnamed = new WeakSet<object>()

function withCode<E extends Error>(error: E, code: string): E {
  unnamed.add(error)
  return Object.assign(error, { code })
}

/**
 * Returns `error`. If it is about a bad argument, its message begins with the function that was
 * called. Of nested calls, the innermost one is named.
 */
export function nameCall(call: string, error: unknown): unknown {
  if (!(error instanceof Error && unnamed.delete(error))) return error
  error.message = `${call}(): ${error.message}`
  // The stack begins with the message.
  Error.captureStackTrace?.(error, nameCall)
  return error
}

/** Returns what `check` returns, and names `call` in the error of a bad argument. */
export function inCall<T>(call: string, check: () => T): T {
  try {
    return check()
  } catch (error) {
    throw nameCall(call, error)
  }
}

/**
 * Returns the error of an argument of the wrong type. `received` describes the argument if its type
 * alone does not help.
 */
export function badType(name: string, expected: string, given: unknown, received = kindOf(given)): TypeError {
  const message = `The "${name}" argument must be ${expected}. Received ${received}`
  return withCode(new TypeError(message), 'ERR_INVALID_ARG_TYPE')
}

export function badValue(message: string, cause?: unknown): TypeError {
  const options = cause === undefined ? undefined : { cause }
  return withCode(new TypeError(message, options), 'ERR_INVALID_ARG_VALUE')
}

export function outOfRange(name: string, range: string, given: number | string): RangeError {
  const message = `The value of "${name}" is out of range. It must be ${range}. Received ${given}`
  return withCode(new RangeError(message), 'ERR_OUT_OF_RANGE')
}

function kindOf(given: unknown): string {
  if (given === null || given === undefined) return String(given)
  if (types.isPromise(given)) return 'a promise: await it first'
  if (typeof given === 'object') return `an instance of ${classOf(given)}`
  return `type ${typeof given}`
}

/** Returns the name of the object's class, or a neutral word if the name may be data. */
function classOf(given: object): string {
  try {
    const name: unknown = Object.getPrototypeOf(given)?.constructor?.name
    return typeof name === 'string' && /^[A-Za-z_$][\w$]{0,39}$/.test(name) ? name : 'Object'
  } catch {
    // The object has a getter that throws, or is a proxy that throws.
    return 'Object'
  }
}

/**
 * The longest delay of a Node timer, which limits all times of this library: 2^31 − 1 ms.
 * `Ttl::MAX` of src/lease/mod.rs is the same.
 */
export const MAX_MS = 2_147_483_647

/** The shortest ttl, in ms. `Ttl::MIN` of src/lease/mod.rs is the same. */
export const MIN_TTL = 10

export function checkMs(name: string, given: unknown, min: number, max = MAX_MS): asserts given is number {
  if (typeof given !== 'number') throw badType(name, 'a number of milliseconds', given)
  if (Number.isInteger(given) && given >= min && given <= max) return
  throw outOfRange(name, `a whole number of milliseconds, >= ${min} and <= ${max}`, given)
}

export function checkMsOrInfinity(name: string, given: unknown, min: number): asserts given is number {
  if (given === Number.POSITIVE_INFINITY) return
  if (typeof given !== 'number') throw badType(name, 'a number of milliseconds, or Infinity', given)
  if (Number.isInteger(given) && given >= min && given <= MAX_MS) return
  throw outOfRange(name, `a whole number of milliseconds, >= ${min} and <= ${MAX_MS}, or Infinity`, given)
}

export function checkTtl(given: unknown): asserts given is number {
  checkMs('ttl', given, MIN_TTL)
}

/** Throws unless `given` is a number from `min` to `max`; with `whole`, a whole one. */
export function checkNumber(
  name: string,
  given: unknown,
  min: number,
  max: number,
  whole = false,
): asserts given is number {
  if (typeof given !== 'number') throw badType(name, 'of type number', given)
  if (given >= min && given <= max && (!whole || Number.isInteger(given))) return
  throw outOfRange(name, `a ${whole ? 'whole ' : ''}number, >= ${min} and <= ${max}`, given)
}

/**
 * Throws unless `given` is a string that native code and stores keep as it is: of `min` to `max`
 * bytes of UTF-8, well-formed, without NUL.
 */
export function checkText(name: string, given: unknown, min: number, max: number): asserts given is string {
  if (typeof given !== 'string') throw badType(name, 'of type string', given)
  if (given.length < min) throw badValue(`The "${name}" argument must not be an empty string`)
  // A character is at most three bytes of UTF-8 for each unit of its length.
  if (given.length * 3 > max && (given.length > max || Buffer.byteLength(given) > max)) {
    throw outOfRange(`${name}.length`, `<= ${max} bytes of UTF-8`, `${Buffer.byteLength(given)}`)
  }
  if (!given.isWellFormed()) throw badValue(`The "${name}" argument must be well-formed: it has a lone surrogate`)
  if (given.includes('\0')) throw badValue(`The "${name}" argument must not have a NUL character in it`)
}

/**
 * Throws unless `given` can name a client at its store. A trace may follow the name; see
 * src/binding/holder.rs.
 */
export function checkName(name: string, given: unknown): asserts given is string {
  checkText(name, given, 1, 255)
  if (given.includes('\u{1f}'))
    throw badValue(`The "${name}" argument must not have the control character U+001F in it`)
}

/** The longest key, in bytes of UTF-8. */
const MAX_KEY = 1024

export function checkKey(given: unknown, name = 'key'): asserts given is string {
  if (typeof given !== 'string') throw badType(name, 'of type string', given, notOneKey(given))
  checkText(name, given, 1, MAX_KEY)
}

/** Describes what was given in place of one key. */
function notOneKey(given: unknown): string {
  return Array.isArray(given) ? 'an array: pass one key' : notKey(given)
}

function notKey(given: unknown): string {
  const kind = kindOf(given)
  return kind === 'an instance of Lease' ? `${kind}: pass its key` : kind
}

/** Returns the key that errors name. */
export function firstOf(keys: string | readonly string[]): string {
  return typeof keys === 'string' ? keys : (keys[0] as string)
}

/**
 * Checks a key, or an array of keys, and returns it. Returns an array sorted and without
 * duplicates: lib/lock/multi-lease.ts acquires the keys in this order, which is the same in every
 * process.
 */
export function checkKeys(given: unknown): string | readonly string[] {
  if (!Array.isArray(given)) {
    if (typeof given !== 'string') throw badType('key', 'of type string, or an array of strings', given, notKey(given))
    checkKey(given)
    return given
  }
  const keys = copyOf(given)
  if (keys.length === 0) throw badValue('The "keys" argument must not be an empty array')
  for (const [i, key] of keys.entries()) checkText(`keys[${i}]`, key, 1, MAX_KEY)
  // Sort by UTF-16 units, not by a language: all processes must sort alike.
  return [...new Set(keys as string[])].sort()
}

export function checkFunction(name: string, given: unknown): void {
  if (typeof given === 'function') return
  const received = types.isPromise(given) ? 'a promise: give the function, and do not call it' : undefined
  throw badType(name, 'of type function', given, received)
}

export function checkBoolean(name: string, given: unknown): asserts given is boolean {
  if (typeof given !== 'boolean') throw badType(name, 'of type boolean', given)
}

export function checkSignal(name: string, given: unknown): asserts given is AbortSignal {
  // Look at the properties, as Node does: polyfills and other realms have classes of their own.
  const { addEventListener, removeEventListener } = Object(given) as Partial<AbortSignal>
  const isLike =
    'aborted' in Object(given) && typeof addEventListener === 'function' && typeof removeEventListener === 'function'
  if (typeof given === 'object' && isLike) return
  const received = given instanceof AbortController ? 'an AbortController: give its signal' : undefined
  throw badType(name, 'an AbortSignal', given, received)
}

/**
 * Returns the options in `given`, and reads each option once. Throws if `given` is not an object
 * or has an unknown option: a misspelt ttl must not go unnoticed. `elsewhere` has the options of
 * other methods, and says why this method does not take them.
 *
 * Only own properties count, and the result inherits nothing, because other code may have put
 * properties on `Object.prototype`. An option from another prototype, such as that of a class, is
 * an error.
 */
export function readOptions<T extends object>(
  given: unknown,
  known: readonly (string & keyof T)[],
  elsewhere: Readonly<Record<string, string>> = {},
): T {
  const like = typeof given === 'object' && given !== null && !Array.isArray(given)
  // A map has entries and no properties, so all options would have their defaults.
  if (!like || types.isPromise(given) || types.isMap(given)) {
    throw badType('options', `an object, such as { ${known[0]}: … }`, given)
  }
  const options: Record<string, unknown> = Object.create(null)
  for (const name of Object.keys(given)) {
    if ((known as readonly string[]).includes(name)) continue
    if (Object.hasOwn(elsewhere, name)) throw badValue(`Unknown option ${JSON.stringify(name)}: ${elsewhere[name]}`)
    throw badValue(`Unknown option${hintOf(name, known)}`)
  }
  for (const name of known) {
    if (Object.hasOwn(given, name)) options[name] = (given as Record<string, unknown>)[name]
    else if (isInherited(given, name))
      throw badValue(`The option "${name}" must be an own property of the options, not of their prototype`)
  }
  return options as T
}

/** Returns whether a prototype other than `Object.prototype` has the property. */
function isInherited(given: object, name: string): boolean {
  if (!(name in given)) return false
  let prototype: object | null = Object.getPrototypeOf(given)
  while (prototype !== null && !Object.hasOwn(prototype, name)) prototype = Object.getPrototypeOf(prototype)
  return prototype !== null && Object.getPrototypeOf(prototype) !== null
}

/**
 * Limits the length of an array argument. If this is much larger, a copy of a sparse array, which
 * may claim 2 ** 32 - 1 elements, takes all memory. If it is smaller, a lock of many keys is
 * refused.
 */
const MOST_ELEMENTS = 100_000

/**
 * Returns a copy of an array. Reads each element once: a Proxy may return another one later. Throws
 * if the array has more than {@link MOST_ELEMENTS} elements.
 */
export function copyOf(given: readonly unknown[]): unknown[] {
  const { length } = given
  if (length > MOST_ELEMENTS) throw badValue(`An array has ${length} elements; pass at most ${MOST_ELEMENTS}`)
  const copy: unknown[] = []
  // Read by index: a Proxy may have its own iterator.
  for (let i = 0; i < length; i++) copy.push(given[i])
  return copy
}

/**
 * Returns the end of the message for an unknown option: the nearest option, or all options. Shows
 * the given name only if it is a misspelt option without digits: any other name may be a misplaced
 * URL or password.
 */
function hintOf(name: string, known: readonly string[]): string {
  const near = nearest(name, known)
  if (near === undefined) return `; the options are ${known.map((option) => `"${option}"`).join(', ')}`
  return `${/^[A-Za-z_-]+$/.test(name) ? ` "${name}"` : ''}; did you mean "${near}"?`
}
