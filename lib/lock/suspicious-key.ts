// Warns of keys with a value that is not set, such as `order:${order.id}` without an id. All calls
// with such a key share one lock, and nothing else shows the mistake.

import { emitWarning } from '../diagnostics/warning'
import { quote } from '../util/printable'

/** The code of the warning: see docs/locks.md. */
const CODE = 'LEASEHOLD_SUSPICIOUS_KEY'

/**
 * Matches a part of a key that is one of {@link CAUSES}. It runs for each call: for usual keys, it
 * takes less than 0.1 µs.
 */
const SUSPICIOUS = /(?:^|[:/.\-_#| ])(undefined|null|NaN|\[object Object\])(?![^:/.\-_#| ])/

/** What was probably put into the key, by the text that JavaScript makes of it. */
const CAUSES: Readonly<Record<string, string>> = {
  undefined: 'a value that is not set',
  null: 'a value that is not set',
  NaN: 'a value that is not a number',
  '[object Object]': 'an object in place of its id',
}

/** The texts that this thread has warned of. */
const warned = new Set<string>()

/**
 * Emits a process warning if a part of `key` looks like a missing value. Warns only of the first
 * key with each such text, because one mistake concerns many calls. Never throws.
 */
export function warnOfSuspiciousKey(key: string): void {
  if (!SUSPICIOUS.test(key)) return
  const text = SUSPICIOUS.exec(key)?.[1] as string
  if (warned.has(text)) return
  warned.add(text)
  emitWarning(
    CODE,
    undefined,
    () =>
      `A part of the key ${quote(key)} is "${text}". Probably, ${CAUSES[text]} was put into the key, so different calls share ` +
      'this lock. Check the value before the call; `node --trace-warnings` shows where the call is. ' +
      `Only the first key with "${text}" is shown`,
  )
}
