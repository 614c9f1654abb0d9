// Which URLs a store has: those that were given, or those of the environment.

import { badValue, checkText, copyOf } from './arguments'

/** Of two, none may fail. */
const FEWEST_NODES = 3

/** Where another URL begins behind a comma or a blank, which belong in no URL there: a password has `/` as `%2F`. */
const COMMA = /,\s*(?:(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i
const BLANK = /\s(?:(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i
/** The blanks between URLs: not those in the path of a file. */
const BETWEEN = /\s+(?=(?:memory|sqlite):|[a-z][a-z0-9+.-]*:\/\/)/i

/** What a client is given as its store, as URLs: one, or those of a quorum. */
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
      `The "${name}" argument must be one URL, or those of at least ${FEWEST_NODES} independent stores, better an odd ` +
        `number: ${urls.length} ${urls.length === 1 ? 'was' : 'were'} given`,
    )
  }
  return checked
}

function checkStore(name: string, url: unknown): asserts url is string {
  checkText(name, url, 1, 65_536)
  // To native code that is the default file; from a user it is a forgotten path.
  if (url === 'sqlite:') throw badValue(`The "${name}" argument names no file: sqlite:PATH`)
  if (COMMA.test(url)) throw severalIn(name, 'commas')
  if (BLANK.test(url)) throw severalIn(name, 'blanks')
}

function severalIn(name: string, between: string): TypeError {
  return badValue(
    `The "${name}" argument is several URLs with ${between} between them. For a quorum give an array in code, --store ` +
      'for each on the command line, and URLs with blanks between them in the environment',
  )
}

/** Returns an own environment variable: `process.env` inherits from `Object.prototype`. */
function variable(name: string): string | undefined {
  return Object.hasOwn(process.env, name) ? process.env[name] : undefined
}

/** That of the environment, which may be a quorum, or else the file that the processes of this user share. */
function defaultStores(): string[] {
  const [LEASEHOLD_URL, REDIS_URL, NODE_ENV] = ['LEASEHOLD_URL', 'REDIS_URL', 'NODE_ENV'].map(variable)
  const text = LEASEHOLD_URL || REDIS_URL
  if (text) {
    const name = LEASEHOLD_URL ? 'LEASEHOLD_URL' : 'REDIS_URL'
    // Before they are taken apart: there may be blanks, too.
    if (COMMA.test(text)) throw severalIn(name, 'commas')
    const urls = text.trim().split(BETWEEN)
    if (urls.length > 1) return checkStores(name, urls)
    const [url] = urls
    checkStore(name, url)
    return [url]
  }
  if (NODE_ENV === 'production') {
    throw badValue(
      'No store is named, and NODE_ENV is "production": pass a URL, or set LEASEHOLD_URL or REDIS_URL. ' +
        'The default, a file on this host, would not exclude other hosts; name one with sqlite:PATH if that is meant',
    )
  }
  return ['sqlite:']
}
