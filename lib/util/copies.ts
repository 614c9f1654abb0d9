// Knows the copies of leasehold that have opened a client in this JavaScript realm, for the errors
// about two copies. Several installed versions, bundlers and test runners load a second copy.

import { join, sep } from 'node:path'
import { printable } from './printable'

const { version } = require('../../package.json')

/** Maps the place of each copy to its version. Copies of all versions share this map. */
type Copies = Map<string, string>

/** Copies of all versions use this name, so the form of its value must stay as it is. */
const NAME = Symbol.for('leasehold.copies')

/** Where this module is in a package that no bundler has changed. */
const IN_PACKAGE = join(sep, 'dist', 'util', 'copies.js')

/**
 * The most other copies that an error names. If this is larger, the error is hard to read; if it is
 * smaller, the error may not name the copy that is in the way.
 */
const MOST_NAMED = 3

/**
 * The most characters of a path in an error. If this is larger, the error is hard to read; if it is
 * smaller, the end of a path is cut off.
 */
const MOST_OF_PATH = 500

/** Notes this copy. */
export function noteCopy(): void {
  copies().set(place(), version)
}

/** Returns sentences that name this copy and the others, and say how to leave only one. */
export function copyWords(): string {
  const here = place()
  const others = [...copies()].filter(([path]) => path !== here).map(([path, other]) => nameOf(other, path))
  const named = others.slice(0, MOST_NAMED).join(', ')
  const more = others.length > MOST_NAMED ? ` and ${others.length - MOST_NAMED} more` : ''
  const words =
    named === ''
      ? 'The other copy is not known here: it may be in another thread or realm'
      : `The other ${others.length === 1 ? 'copy is' : 'copies are'} ${named}${more}`
  return (
    `This copy is ${nameOf(version, here)}. ${words}. ` +
    '`npm ls leasehold` shows which packages need them, and `npm dedupe` leaves one if their versions allow it'
  )
}

function copies(): Copies {
  const known: unknown = Reflect.get(globalThis, NAME)
  if (known instanceof Map) return known
  const made: Copies = new Map()
  // If the global object is frozen, this returns false and does not throw.
  Reflect.defineProperty(globalThis, NAME, { value: made, configurable: true })
  return made
}

/** Returns the folder of this copy, or the file of the bundle that it is in. */
function place(): string {
  // Bundles of ES modules have no `__filename`.
  if (typeof __filename !== 'string') return 'a bundle'
  return __filename.endsWith(IN_PACKAGE) ? __filename.slice(0, -IN_PACKAGE.length) : __filename
}

const nameOf = (of: string, path: string): string => `${of} in ${printable(path, MOST_OF_PATH)}`
