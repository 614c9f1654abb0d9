// Finds the URLs of a store: those that were given, or those of the environment.

import { badType, badValue, checkText, copyOf } from '../../util/arguments'
import { connectionUrl, type ForeignClient, foreignClient, hasUrl, isLockClient } from './foreign-client'
import { storeHint } from './store-hint'

/** The fewest nodes of a quorum: with two, none may fail. */
const FEWEST_NODES = 3

/** The environment variables that name the default store; the first one that is set counts. */
const VARIABLES: readonly string[] = ['LEASEHOLD_URL', 'REDIS_URL']

/**
 * Match the start of a second URL after a comma or a blank. No URL contains these there: a password
 * has `/` as `%2F`.
 */
const COMMA = /,\s*(?:(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i
const BLANK = /\s(?:(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i
/** Matches the blanks between URLs, and not those in the path of a file. */
const BETWEEN = /(?<!\s)\s+(?=(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i

/** Returns the URLs of the given store: one, or those of a quorum. */
export function resolveStores(given: unknown): string[] {
  if (given === undefined) return defaultStores()
  if (!Array.isArray(given)) {
    checkStore('store', given)
    return [given]
  }
  return checkStores('store', copyOf(given))
}

function checkStores(name: string, urls: readonly unknown[]): string[] {
  const checked = urls.map((url, i) => {
    checkStore(`${name}[${i}]`, url)
    return url
  })
  if (urls.length < FEWEST_NODES) {
    throw badValue(
      `${subject(name)} must be one URL, or those of at least ${FEWEST_NODES} independent stores, better an odd ` +
        `number: ${urls.length} ${urls.length === 1 ? 'was' : 'were'} given`,
    )
  }
  return checked
}

function checkStore(name: string, url: unknown): asserts url is string {
  if (typeof url !== 'string') throw noUrl(name, url)
  checkText(name, url, 1, 65_536)
  // Native code takes this for the default file, but a user has forgotten the path.
  if (url === 'sqlite:') throw badValue(`${subject(name)} names no file: sqlite:PATH`)
  const hint = storeHint(url)
  if (hint !== undefined) throw badValue(`${subject(name)} ${hint}`)
  if (COMMA.test(url)) throw severalIn(name, 'commas')
  if (BLANK.test(url)) throw severalIn(name, 'blanks')
}

/** Throws if `given` is a client and not options. The error says what to give instead. */
export function refuseClients(given: unknown): void {
  const client = foreignClient(given)
  if (client !== undefined) throw foreign('store', given, client, `createLockClient('${client.url}')`)
  if (isLockClient(given)) throw badType('store', 'the URL of a store', given, 'a lock client: use it as it is')
  // A URL object would pass for options, because it has a `username` and a `password`.
  if (isUrlObject(given)) throw badType('store', 'a string', given, URL_OBJECT)
}

const URL_OBJECT = 'a URL object: give its href'

function isUrlObject(given: unknown): boolean {
  try {
    return given instanceof URL
  } catch {
    // `given` is a proxy that throws.
    return false
  }
}

/** Returns the error for a store that is not a string. */
function noUrl(name: string, given: unknown): TypeError {
  const client = foreignClient(given)
  if (client !== undefined) {
    return foreign(name, given, client, name === 'store' ? `{ store: '${client.url}' }` : `'${client.url}'`)
  }
  if (isUrlObject(given)) return badType(name, 'of type string', given, URL_OBJECT)
  if (isLockClient(given)) return badType(name, 'of type string', given, 'a lock client: give its URL')
  if (hasUrl(given)) return badType(name, 'of type string', given, 'an object with a URL: give the URL itself')
  const meant = connectionUrl(given)
  if (meant === undefined) return badType(name, 'of type string', given)
  const code = name === 'store' ? `{ store: '${meant}' }` : `'${meant}'`
  return badType(name, 'of type string', given, `the options of a connection: write them as a URL, ${code}`)
}

/** Returns the error for a client of another library. `code` is what to write instead. */
function foreign(name: string, given: unknown, { what }: ForeignClient, code: string): TypeError {
  const received = `${what}. leasehold opens its own connections, so give the URL: ${code}`
  return badType(name, 'the URL of a store', given, received)
}

/** Names an argument or an environment variable. */
function subject(name: string): string {
  return VARIABLES.some((variable) => name.startsWith(variable))
    ? `The environment variable ${name}`
    : `The "${name}" argument`
}

function severalIn(name: string, between: string): TypeError {
  return badValue(
    `${subject(name)} is several URLs with ${between} between them. For a quorum give an array in code, --store ` +
      'for each on the command line, and URLs with blanks between them in the environment',
  )
}

/** Returns an own environment variable: `process.env` inherits from `Object.prototype`. */
function variable(name: string): string | undefined {
  return Object.hasOwn(process.env, name) ? process.env[name] : undefined
}

/** Returns the environment variable that names the default store, if one is set. */
export function storeVariable(): string | undefined {
  return VARIABLES.find(variable)
}

/**
 * Returns the store of the environment, which may be a quorum, or the file that the processes of
 * this user share.
 */
function defaultStores(): string[] {
  const name = storeVariable()
  if (name !== undefined) {
    const text = variable(name) as string
    // Check for commas before the split: there may be blanks, too.
    if (COMMA.test(text)) throw severalIn(name, 'commas')
    const urls = text.trim().split(BETWEEN)
    if (urls.length > 1) return checkStores(name, urls)
    const [url] = urls
    checkStore(name, url)
    return [url]
  }
  if (variable('NODE_ENV') === 'production') {
    throw badValue(
      'No store is named, and NODE_ENV is "production": pass a URL, or set LEASEHOLD_URL or REDIS_URL. ' +
        'The default, a file on this host, would not exclude other hosts; name one with sqlite:PATH if that is meant',
    )
  }
  return ['sqlite:']
}
