// What all loaded copies of this version share in one JavaScript realm. Bundlers and test runners
// load a package more than once.

const { version } = require('../package.json')

/**
 * Returns what the first copy has `made` under `name`. If the global object is frozen, each copy has
 * its own.
 */
export function shared<T extends object>(name: string, make: () => T): T {
  const key = Symbol.for(`leasehold.${name}@${version}`)
  const known = (globalThis as { [key]?: T })[key]
  if (known !== undefined) return known
  const value = make()
  // If the global object is frozen, this returns false and throws nothing.
  Reflect.defineProperty(globalThis, key, { value, configurable: true })
  return value
}
