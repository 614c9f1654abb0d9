import { types } from 'node:util'

/** How much of a text is told. */
const MOST = 200

/** What tells most of what a library throws that is no error. Nothing else of it is told: it may be a secret. */
const TOLD = ['name', 'code', 'message'] as const

/** What was thrown, as listeners may expect it: what is no error is the cause of one. Never throws, whatever it is. */
export function asError(thrown: unknown): Error {
  let what: string = typeof thrown
  try {
    // Those of other realms are errors, too.
    if (thrown instanceof Error || types.isNativeError(thrown)) return thrown
    what = described(thrown)
  } catch {
    // Its getters throw, or it is a proxy that does: that it is an object is all that can be told.
  }
  return new Error(`what was thrown is not an Error, but ${what}`, { cause: thrown })
}

function described(thrown: unknown): string {
  if (typeof thrown === 'string') return JSON.stringify(cut(thrown))
  if (typeof thrown === 'function') return 'a function'
  if (typeof thrown !== 'object' || thrown === null) return cut(String(thrown))
  const found = TOLD.flatMap((name) => {
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
  return text.length <= MOST ? text : `${text.slice(0, MOST)}…`
}
