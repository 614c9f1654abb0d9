// The keys of the locks that stand for ids of once() and ticks of schedule(). Other calls must not
// lock them: a visitor who chooses keys could make a client believe that its task is done.

import { badValue, checkKey, checkText, outOfRange } from '../util/arguments'
import { markReserved } from './side-keys'
import { warnOfSuspiciousKey } from './suspicious-key'

const MAX_KEY = 1_024
const MARK = '@once:'

/**
 * Returns the key of the lock that stands for `id`. Two different pairs of `key` and `id` never get
 * the same key: each @ in the id is escaped, so the last @ of the result belongs to the mark.
 * Braces in the id are escaped, too, because they would choose the slot in Redis Cluster.
 */
export function onceKeyOf(key: unknown, id: unknown): string {
  checkKey(key)
  checkText('id', id, 1, MAX_KEY)
  warnOfSuspiciousKey(key)
  warnOfSuspiciousKey(id)
  const escaped = id.replace(/[%@{}]/g, (char) => `%${char.charCodeAt(0).toString(16)}`)
  const onceKey = `${key}${MARK}${escaped}`
  const bytes = Buffer.byteLength(onceKey)
  if (bytes > MAX_KEY) {
    throw outOfRange('id.length', `so short that key and id make a lock of <= ${MAX_KEY} bytes`, `${bytes} bytes`)
  }
  return onceKey
}

/** Returns whether {@link onceKeyOf} makes keys such as `key`. */
export function isOnceKey(key: string): boolean {
  return key.includes(MARK) && /@once:[^@{}]+$/.test(key)
}

/** Throws if a key is one that {@link onceKeyOf} makes. */
export function checkNoOnceKey(keys: string | readonly string[]): void {
  if (typeof keys === 'string' ? isOnceKey(keys) : keys.some(isOnceKey)) throw isReserved()
}

function isReserved(): TypeError {
  return markReserved(
    badValue(
      'The "key" argument names the lock of an id of once() or of a tick of schedule(), because it ends with "@once:" ' +
        'and an id. Use another key',
    ),
  )
}
