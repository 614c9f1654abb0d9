// What the key function and the options of a request's lock say, checked when a server is put together rather than at its
// first request.

import type * as api from '../../index'
import type { RequestKeys, RequestLockOptions } from '../../types/http'
import { badType, checkFunction, checkOptions, MAX_MS } from '../arguments'
import { asking, parseAcquire } from '../options'

const LOCK_OPTIONS = ['ttl', 'wait', 'retry', 'maxHold'] as const satisfies (keyof RequestLockOptions)[]
const CALLBACKS = ['onBusy', 'onUnavailable'] as const

export function checkLocks(given: unknown): asserts given is api.LockClient {
  const { withLock, inspect } = Object(given) as Partial<api.LockClient>
  const like = typeof withLock === 'function' && typeof inspect === 'function'
  if (!like) throw badType('locks', 'a lock client', given)
}

/** Checks the options, of which those named `more` are not all servers'. Returns those that acquire() takes. */
export function parseRequestLock(given: unknown, more: readonly string[] = []): RequestLockOptions {
  checkOptions(given, ['key', ...LOCK_OPTIONS, ...CALLBACKS, ...more])
  const options = given as RequestLockOptions & Record<string, unknown>
  checkFunction('key', options.key)
  for (const name of CALLBACKS) if (options[name] !== undefined) checkFunction(name, options[name])
  const { ttl, wait, retry, maxHold } = options
  const asked = { ttl, wait, retry, maxHold }
  // For what it throws. Only the client knows its defaults, and fills them in at each request.
  parseAcquire(asked, asking(MAX_MS, 0))
  return asked
}

/** Whether the key function said that no lock is needed. */
export function needsNone(keys: RequestKeys): keys is null | undefined {
  return keys === undefined || keys === null
}
