// Shows a text that a user gave in the wrong place, for an error. The text may be a URL, and its
// password must not get into a log.

import { quote } from './printable'

/** Matches text that only a store, a login or a secret contains. A URL may be encoded. */
const SECRET = /:\/\/|@|%40|%3a%2f%2f|-----BEGIN/i

/** What an error says in place of a text that may be a secret. */
export const NOT_SHOWN = 'not shown, because it may contain a password'

/** Returns whether a text may be a secret, or contain one. */
export const mayBeSecret = (text: string): boolean => SECRET.test(text)

/** Returns a text as an error shows it, in quotes, or words in its place if it may be a secret. */
export function shownText(text: string): string {
  return mayBeSecret(text) ? `a text that is ${NOT_SHOWN}` : quote(text)
}
