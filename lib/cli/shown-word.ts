// Shows a word of the command line that is in the wrong place, for an error. The word may be a URL,
// and its password must not get into a log or into the mail of cron.

import { mayBeSecret, NOT_SHOWN } from '../util/shown-text'
import { keyWithoutLogins } from '../util/without-logins'
import { UsageError } from './exits'

/** The longest word that an error shows, in characters. */
const MOST = 100

/** Returns a word as an error shows it, in quotes, or words in its place if it may be a secret. */
export function shownWord(word: string | undefined): string {
  if (word === undefined) return 'nothing'
  if (mayBeSecret(word)) return `a word that is ${NOT_SHOWN}`
  return JSON.stringify(word.length > MOST ? `${word.slice(0, MOST)}…` : word)
}

/** Returns an option as an error shows it, without its value. */
export function shownOption(option: string): string {
  const [name = ''] = option.split('=', 1)
  return mayBeSecret(name) ? `an option that is ${NOT_SHOWN}` : name
}

/** The options of a command that has a store. */
interface Options {
  readonly values: { readonly store?: unknown }
}

/** Matches the URL of a server. */
const SERVER = /^(?:rediss?|redis\+unix|rediss?-sentinel|rediss?-cluster):\/\//i

/**
 * Returns a word of the command line as a key. Throws if the word has a URL with a login. Also
 * throws if it is the URL of a server and no option names the store: the command would use another
 * store.
 */
export function keyOf(word: string | undefined, given: Options): string {
  if (word === undefined || keyWithoutLogins(word) !== word) {
    throw new UsageError(`the key must be the name of a lock. Received ${shownWord(word)}${storeAdvice(word)}`)
  }
  refuseServer(word, given)
  return word
}

/** Throws if a word is the URL of a server and no option names the store. */
export function refuseServer(word: string | undefined, given: Options): void {
  if (word === undefined || !SERVER.test(word) || given.values.store !== undefined) return
  throw new UsageError('the URL of a server is no lock: to name a store, write --store URL')
}

/** Returns the end of an error message: what to do if `word` is probably a store. */
export function storeAdvice(word: string | undefined): string {
  return word !== undefined && mayBeSecret(word) ? '; to name a store, write --store URL' : ''
}
