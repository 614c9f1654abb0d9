// Shares values between all loaded copies of this version of leasehold in one JavaScript realm.
// Bundlers and test runners load a package more than once.

const { version } = require('../../package.json')

/**
 * Returns the value `name` that all copies share. The first copy that asks creates it with `make`.
 * If the global object is frozen, each copy creates its own.
 */
export function singleton<T extends object>(name: string, make: () => T): T {
  const key = Symbol.for(`leasehold.${name}@${version}`)
  const known = (globalThis as { [key]?: T })[key]
  if (known !== undefined) return known
  const value = make()
  // If the global object is frozen, this returns false and does not throw.
  Reflect.defineProperty(globalThis, key, { value, configurable: true })
  return value
}
