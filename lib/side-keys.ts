// Refuses keys that can't be locks, because a Redis store would keep data of another lock there. This
// holds for all stores, so that a key that works with one store works with every other.

import { badValue } from './arguments'
import { bridge } from './native'

/** Throws if one of the keys, with the prefix of the client, is a side key. */
export type Checker = (keys: string | readonly string[]) => void

/** Returns the checker for clients with `prefix`. See src/store/redis/side_keys.rs. */
export function checkerOf(prefix: string): Checker {
  // All side keys begin with a brace.
  if (prefix !== '' && !prefix.startsWith('{')) return () => {}
  const check = (key: string) => {
    const name = prefix + key
    if (name.startsWith('{') && bridge.isSideKey(name)) throw isSideKey()
  }
  return (keys) => (typeof keys === 'string' ? check(keys) : keys.forEach(check))
}

function isSideKey(): TypeError {
  return badValue(
    'The "key" argument, with the prefix of its client, names a key in which a Redis store keeps data of another lock, ' +
      'such as "{LOCK}:fence". Use another key, or another prefix',
  )
}
