// Refuses keys that can't be locks, because a Redis store keeps data of another lock under that
// name. This holds for all stores, so that a key that works with one store works with every other.

import { badValue } from './arguments'
import { bridge } from './native'

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

/** Has the errors that a {@link Checker} threw. */
const refused = new WeakSet<object>()

/** Returns true if `error` says that a key names a side key. */
export function isAboutSideKey(error: unknown): error is TypeError {
  return refused.has(Object(error))
}

function isSideKey(): TypeError {
  const error = badValue(
    'The "key" argument, with the prefix of its client, names a key in which a Redis store keeps data of another lock, ' +
      'such as "{LOCK}:fence". Use another key, or another prefix',
  )
  refused.add(error)
  return error
}
