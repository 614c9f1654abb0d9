import { types } from 'node:util'
import { withoutLogins } from './without-logins'

/** The most characters of a text that a message shows. */
const MOST = 200

/**
 * The properties that a message shows of a thrown object that is no error. Other properties may be
 * secrets.
 */
const SHOWN = ['name', 'code', 'message'] as const

/** Returns `thrown` if it is an error, else an error whose cause it is. Never throws. */
export function asError(thrown: unknown): Error {
  let what: string = typeof thrown
  try {
    // Errors of other realms are errors, too.
    if (thrown instanceof Error || types.isNativeError(thrown)) return thrown
    what = describe(thrown)
  } catch {
    // A getter throws, or `thrown` is a proxy that throws: the message only says its type.
  }
  return new Error(`what was thrown is not an Error, but ${what}`, { cause: thrown })
}

function describe(thrown: unknown): string {
  if (typeof thrown === 'string') return JSON.stringify(cut(thrown))
  if (typeof thrown === 'function') return 'a function'
  if (typeof thrown !== 'object' || thrown === null) return cut(String(thrown))
  const found = SHOWN.flatMap((name) => {
    const value: unknown = Reflect.get(thrown, name)
    if (typeof value === 'number') return `${name} ${value}`
    return typeof value === 'string' && value !== '' ? `${name} ${JSON.stringify(cut(value))}` : []
  })
  return [kindOf(thrown), ...found].join(', ')
}

function kindOf(thrown: object): string {
  if (Array.isArray(thrown)) return 'an array'
  const name: unknown = thrown.constructor?.name
  if (typeof name !== 'string' || name === '' || name === 'Object') return 'an object'
  return `an instance of ${cut(name)}`
}

function cut(text: string): string {
  // Hide logins first: a cut could remove the `@` that shows where a password is.
  const shown = withoutLogins(text)
  return shown.length <= MOST ? shown : `${shown.slice(0, MOST)}…`
}
