// Refuses keys that can't be locks, because a Redis store keeps data of another lock under that
// name. This holds for all stores, so that a key that works with one store works with every other.

import { bridge } from '../native/records'
import { badValue } from '../util/arguments'

/** Throws if a key, with the client's prefix, names a side key. */
export type Checker = (keys: string | readonly string[]) => void

/** Returns the checker for clients with `prefix`. See src/store/redis/side_keys.rs. */
export function checkerOf(prefix: string): Checker {
  // All side keys begin with `{`, so with any other prefix no key can name one.
  if (prefix !== '' && !prefix.startsWith('{')) return () => {}
  const check = (key: string) => {
    const name = prefix + key
    if (name.startsWith('{') && bridge.isSideKey(name)) throw isSideKey()
  }
  return (keys) => (typeof keys === 'string' ? check(keys) : keys.forEach(check))
}

/** The errors that say that a key is reserved. */
const reserved = new WeakSet<object>()

/** Notes that `error` says that a key is reserved for the client's own use. Returns the error. */
export function markReserved(error: TypeError): TypeError {
  reserved.add(error)
  return error
}

/** Returns true if `error` says that a key is reserved. */
export function isAboutReservedKey(error: unknown): error is TypeError {
  return reserved.has(Object(error))
}

function isSideKey(): TypeError {
  return markReserved(
    badValue(
      'The "key" argument, with the prefix of its client, names a key in which a Redis store keeps data of another lock, ' +
        'such as "{LOCK}:fence". Use another key, or another prefix',
    ),
  )
}
