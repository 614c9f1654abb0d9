// Shows a word of the command line that is in the wrong place, for an error. The word may be a URL,
// and its password must not get into a log or into the mail of cron.

import { UsageError } from './exits'

/** The longest word that an error shows, in characters. */
const MOST = 100
/** Matches text that only a store, a login or a secret contains. */
const SECRET = /:\/\/|@|-----BEGIN/

/** Returns a word as an error shows it, in quotes, or words in its place if it may be a secret. */
export function shownWord(word: string | undefined): string {
  if (word === undefined) return 'nothing'
  if (SECRET.test(word)) return 'a word that is not shown, because it may contain a password'
  return JSON.stringify(word.length > MOST ? `${word.slice(0, MOST)}…` : word)
}

/** Returns an option as an error shows it, without its value. */
export function shownOption(option: string): string {
  const [name = ''] = option.split('=', 1)
  return SECRET.test(name) ? 'an option that is not shown, because it may contain a password' : name
}

/** Matches the URL of a server with a login. */
const LOGIN = /^\w[\w+.-]*:\/\/[^/?#]*@/

/** Returns a word of the command line as a key. Throws if it is the URL of a store with a login. */
export function keyOf(word: string | undefined): string {
  if (word === undefined || LOGIN.test(word)) {
    throw new UsageError(`the key must be the name of a lock. Received ${shownWord(word)}${storeAdvice(word)}`)
  }
  return word
}

/** Returns the end of an error message: what to do if `word` is probably a store. */
export function storeAdvice(word: string | undefined): string {
  return word !== undefined && SECRET.test(word) ? '; to name a store, write --store URL' : ''
}
