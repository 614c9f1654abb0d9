// Explains a text that is not the URL of a store: what is wrong, and what to write instead. Of the
// text, it shows only names of hosts: any other part may be a password.

import { nearest } from '../../util/nearest'

/** The schemes of stores, and how a URL of each begins. */
const FORMS: Readonly<Record<string, string>> = {
  memory: 'memory:NAME',
  sqlite: 'sqlite:PATH',
  redis: 'redis://',
  rediss: 'rediss://',
  'redis+unix': 'redis+unix://',
  'redis-sentinel': 'redis-sentinel://',
  'rediss-sentinel': 'rediss-sentinel://',
  'redis-cluster': 'redis-cluster://',
  'rediss-cluster': 'rediss-cluster://',
}

/** The schemes that other libraries use for these stores. */
const ALIASES: Readonly<Record<string, string>> = {
  cluster: 'redis-cluster',
  file: 'sqlite',
  keydb: 'redis',
  sentinel: 'redis-sentinel',
  sqlite3: 'sqlite',
  tcp: 'redis',
  tls: 'rediss',
  unix: 'redis+unix',
  valkey: 'redis',
  valkeys: 'rediss',
}

/**
 * Texts that are wrong as a whole. Most come from a variable without a value, or of the wrong type.
 */
const TEXTS: Readonly<Record<string, string>> = {
  undefined: 'is the text "undefined": set the variable that it comes from',
  null: 'is the text "null": set the variable that it comes from',
  '[object Object]': 'is the text "[object Object]": give the URL as a string, not an object',
  ':memory:': 'has no scheme: did you mean memory:NAME?',
  memory: 'is only the scheme of a store: write memory:NAME',
  redis: 'is only the scheme of a store: write redis://HOST:6379',
  sqlite: 'is only the scheme of a store: write sqlite:PATH',
}

/** The schemes of servers that are no store. Other schemes are not shown: one may be a password. */
const OTHERS = 'http https mysql mariadb mongodb mongodb+srv amqp amqps nats etcd memcached ws wss'.split(' ')

const POSTGRES: readonly string[] = ['postgres', 'postgresql']
const INSTEAD = 'use redis://HOST:6379, or sqlite:PATH for the processes of one host'
const INSTEAD_OF_POSTGRES = `which is not supported yet: ${INSTEAD}`

const SCHEME = /^([a-z][a-z0-9+.-]*):/i
/**
 * Matches a host that is certainly no password: a well-known name, a name with dots, or an address.
 */
const HOST = /^(?:localhost|redis|valkey|\[[\da-f:]+\]|[a-z\d-]+(?:\.[a-z\d-]+)+)$/i
const ADDRESS = /^(localhost|\d{1,3}(?:\.\d{1,3}){3})$/i
/** Matches the path of a file, also on Windows. */
const PATH = /^(?:\.{0,2}[\\/]|~|[a-z]:[\\/])|\.(?:db|sqlite3?)$/i

/**
 * Returns what is wrong with `text`, and what to write instead; `undefined` if nothing is known.
 */
export function storeHint(text: string): string | undefined {
  if (Object.hasOwn(TEXTS, text)) return TEXTS[text]
  if (/^\s/.test(text)) return 'begins with a blank or a line break: remove it'
  if (/^["'`]/.test(text)) return 'begins with a quotation mark: remove the marks around the URL'
  const address = addressIn(text)
  if (address !== undefined) return `has no scheme: did you mean redis://${address}?`
  const scheme = SCHEME.exec(text)?.[1]?.toLowerCase()
  if (scheme !== undefined && Object.hasOwn(FORMS, scheme)) {
    const ends = /\s$/.test(text) && !['memory', 'sqlite'].includes(scheme)
    return ends ? 'ends with a blank or a line break: remove it' : undefined
  }
  if (scheme !== undefined && (text.startsWith('//', scheme.length + 1) || scheme === 'file')) {
    const meant = ALIASES[scheme] ?? nearest(scheme, Object.keys(FORMS))
    if (POSTGRES.includes(scheme)) return `names PostgreSQL, ${INSTEAD_OF_POSTGRES}`
    if (OTHERS.includes(scheme)) return `has the scheme ${scheme}://, which no store has: ${INSTEAD}`
    return meant && `has an unknown scheme: did you mean ${FORMS[meant]}?`
  }
  if (PATH.test(text)) return 'has no scheme: if it is the path of a file, write sqlite:PATH'
  if (/^[^\s/]*@[^\s/@]+(?:\/\d*)?$/.test(text)) return 'has no scheme: write redis://USER:PASSWORD@HOST:6379'
  const isAddress = /^[^\s/:]+:\d{1,5}(?:\/\d*)?$/.test(text)
  return isAddress ? 'has no scheme: write redis:// before host and port, as in redis://localhost:6379' : undefined
}

/** Returns `text` if it is the address of a server, with a port. */
function addressIn(text: string): string | undefined {
  if (ADDRESS.test(text)) return `${text}:6379`
  const [, host = '', port] = /^(.+):(\d{1,5})(?:\/\d{1,3})?$/.exec(text) ?? []
  return HOST.test(host) && Number(port) > 0 && Number(port) < 65_536 ? text : undefined
}
