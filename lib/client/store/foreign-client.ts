// Recognizes a client of ioredis, of node-redis or of this library in the place of a store's URL.
// Returns the URL to give instead. Never shows a password.
//
// Looks at shapes, because the libraries may be of any version, and may not be installed.

import { copyWords } from '../../util/copies'

/** Describes a client of another library. */
export interface ForeignClient {
  /** Names the client: `a client of ioredis`. */
  readonly what: string
  /** The URL of its server, with `<password>` in place of a password. */
  readonly url: string
}

/**
 * The most hosts of a cluster, or sentinels, that a URL lists. If this is larger, the message is
 * hard to read; if it is smaller, the user has to add more of the hosts.
 */
const MOST_HOSTS = 5
const [REDIS_PORT, SENTINEL_PORT] = [6_379, 26_379]

/** Returns `undefined` if `given` is none of the known clients. Never throws. */
export function foreignClient(given: unknown): ForeignClient | undefined {
  if (!isInstance(given)) return undefined
  const options = read(given, 'options') ?? read(given, '_options')
  if (isMethod(given, 'sendCommand')) {
    // A client of ioredis has the state of its connection, and one of node-redis says whether it is
    // connected.
    if (typeof read(given, 'status') === 'string') return ofIoredis(given, options)
    if (typeof read(given, 'isOpen') === 'boolean') return ofNodeRedis(given, options)
  }
  // This is node-redis before version 4.
  if (isMethod(given, 'internal_send_command')) return { what: 'a client of node-redis', url: serverUrl(options) }
  return undefined
}

/**
 * The connection options of other libraries. In leasehold, the URL of the store has their values.
 */
const OF_CONNECTION = 'host hostname port family socket path db database sentinels sentinelRootNodes rootNodes'.split(
  ' ',
)

/** The options under which other libraries take a client. */
const OF_CLIENT = ['client', 'redis', 'connection', 'redisClient'] as const

/**
 * Returns what to write instead of each option of a connection, if `given` has one. Never throws.
 */
export function connectionHints(given: unknown): Readonly<Record<string, string>> {
  if (!isObject(given)) return {}
  for (const name of OF_CLIENT) {
    const client = hasOwn(given, name) ? foreignClient(read(given, name)) : undefined
    if (client === undefined) continue
    return {
      [name]: `it is ${client.what}; leasehold opens its own connections, so give the URL: { store: '${client.url}' }`,
    }
  }
  const url = connectionUrl(given)
  if (url === undefined) return {}
  const why = `write it into the URL of the store, { store: '${url}' }`
  return Object.fromEntries(OF_CONNECTION.map((name) => [name, why]))
}

/**
 * Returns the URL that the connection options in `given` describe, if there are any. Never throws.
 */
export function connectionUrl(given: unknown): string | undefined {
  return OF_CONNECTION.some((name) => hasOwn(given, name)) ? serverUrl(given) : undefined
}

/**
 * Returns whether `given` has a text as `url`, like the options of other libraries. Never throws.
 */
export const hasUrl = (given: unknown): boolean => hasOwn(given, 'url') && typeof read(given, 'url') === 'string'

/** Returns whether `given` is a lock client, also of another copy of this library. */
export function isLockClient(given: unknown): boolean {
  return isInstance(given) && isMethod(given, 'withLock') && isMethod(given, 'tryAcquire') && isMethod(given, 'inspect')
}

/** Describes a lock client of another copy of leasehold. Returns `undefined` for other values. */
export const otherCopy = (given: unknown): string | undefined =>
  isLockClient(given) ? `one of another copy of leasehold: load both from the same copy. ${copyWords()}` : undefined

/**
 * Returns the URL for the options of a connection, as other libraries take them, with `<password>`
 * in place of a password: `{ host, port }`, `{ socket: { host, port } }`, `{ sentinels, name }`.
 * Never throws.
 */
export function serverUrl(options: unknown): string {
  const nodes = listOf(read(options, 'rootNodes'))
  if (nodes !== undefined) return clusterUrl(nodes, read(options, 'defaults'))
  const sentinels = listOf(read(options, 'sentinels') ?? read(options, 'sentinelRootNodes'))
  const at = isObject(read(options, 'socket')) ? read(options, 'socket') : options
  const login = loginOf(options)
  const secure = read(at, 'tls') ? 's' : ''
  const database = read(options, 'db') ?? read(options, 'database')
  const index = Number.isInteger(database) && (database as number) > 0 ? (database as number) : undefined
  if (sentinels !== undefined) {
    const name = read(options, 'name')
    const master = typeof name === 'string' && /^[\w.-]{1,100}$/.test(name) ? name : 'MASTER'
    const query = index === undefined ? '' : `?db=${index}`
    return `redis${secure}-sentinel://${login}${hostsOf(sentinels, SENTINEL_PORT)}/${master}${query}`
  }
  const path = read(at, 'path')
  if (typeof path === 'string' && /^\/[\w./ -]{1,200}$/.test(path)) {
    return `redis+unix://${login}${encodeURI(path)}${index === undefined ? '' : `?db=${index}`}`
  }
  return `redis${secure}://${login}${hostOf(at, REDIS_PORT)}${index === undefined ? '' : `/${index}`}`
}

function ofIoredis(client: object, options: unknown): ForeignClient {
  if (read(client, 'isCluster') !== true) return { what: 'a client of ioredis', url: serverUrl(options) }
  return {
    what: 'a cluster client of ioredis',
    url: clusterUrl(read(client, 'startupNodes'), read(options, 'redisOptions')),
  }
}

function ofNodeRedis(client: object, options: unknown): ForeignClient {
  if (isMethod(client, 'getSlotMaster') || isMethod(client, 'getSlotRandomNode')) {
    const url = clusterUrl(read(options, 'rootNodes'), read(options, 'defaults'))
    return { what: 'a cluster client of node-redis', url }
  }
  // These two kinds of client do not show their options.
  if (isMethod(client, 'getSentinelNode')) {
    return { what: 'a sentinel client of node-redis', url: `redis-sentinel://HOST:${SENTINEL_PORT}/MASTER` }
  }
  if (typeof read(client, 'totalClients') === 'number') {
    return { what: 'a client pool of node-redis', url: `redis://HOST:${REDIS_PORT}` }
  }
  return { what: 'a client of node-redis', url: serverUrl(options) }
}

/**
 * Returns the URL of a cluster. Either `defaults` has the login of all nodes, or the URL of a node
 * has it.
 */
function clusterUrl(given: unknown, defaults: unknown): string {
  const nodes = listOf(given)
  const first = nodes?.map(placeOf)[0]
  const login = loginOf(defaults) || loginOf(first)
  const socket = read(defaults, 'socket')
  const secure = read(defaults, 'tls') || read(socket, 'tls') || read(first, 'tls') ? 's' : ''
  return `redis${secure}-cluster://${login}${hostsOf(nodes, REDIS_PORT)}`
}

function hostsOf(nodes: readonly unknown[] | undefined, port: number): string {
  return (
    nodes
      ?.slice(0, MOST_HOSTS)
      .map((node) => hostOf(placeOf(node), port))
      .join(',') ?? `HOST:${port}`
  )
}

/** Returns where a node is, as an object with `host` and `port`. */
function placeOf(node: unknown): unknown {
  if (typeof node === 'number') return { port: node }
  const url = typeof node === 'string' ? node : read(node, 'url')
  if (typeof url !== 'string') return isObject(read(node, 'socket')) ? read(node, 'socket') : node
  try {
    const { hostname, port, username, password, protocol } = new URL(url)
    return { host: hostname, port: port || REDIS_PORT, username, password, tls: protocol === 'rediss:' }
  } catch {
    return { host: 'HOST' }
  }
}

function hostOf(at: unknown, usual: number): string {
  const { host = 'localhost', port = usual } = {
    host: read(at, 'host') ?? undefined,
    port: read(at, 'port') ?? undefined,
  }
  const isPort = /^\d{1,5}$/.test(String(port))
  const shown = typeof host === 'string' && /^(?:[\w.-]{1,255}|\[?[\da-f:.]{2,45}\]?)$/i.test(host) ? host : 'HOST'
  const isBare = shown.includes(':') && !shown.startsWith('[')
  return `${isBare ? `[${shown}]` : shown}:${isPort ? port : usual}`
}

/**
 * Returns the login of a URL. Hides a user name without a password: it may be a misplaced password.
 */
function loginOf(options: unknown): string {
  const [user, password] = [read(options, 'username'), read(options, 'password') ?? read(options, 'auth_pass')]
  const hasUser = typeof user === 'string' && user !== ''
  if (!password) return hasUser ? '<username>@' : ''
  return `${hasUser ? encodeURIComponent(user.slice(0, 100).toWellFormed()) : ''}:<password>@`
}

/** Returns whether `given` is an instance of a class. Plain options are not. */
function isInstance(given: unknown): given is object {
  try {
    const prototype: unknown = isObject(given) ? Object.getPrototypeOf(given) : null
    return prototype !== null && Object.getPrototypeOf(prototype) !== null
  } catch {
    return false
  }
}

const isObject = (given: unknown): given is object => typeof given === 'object' && given !== null

/** Returns whether `given` has its own property `name`. Never throws. */
function hasOwn(given: unknown, name: string): boolean {
  try {
    return isObject(given) && Object.hasOwn(given, name)
  } catch {
    return false
  }
}

const isMethod = (of: object, name: string): boolean => typeof read(of, name) === 'function'

const listOf = (given: unknown): readonly unknown[] | undefined =>
  Array.isArray(given) && given.length > 0 ? given : undefined

/** Returns a property, or `undefined` if there is none or its getter throws. */
function read(of: unknown, name: string): unknown {
  try {
    return isObject(of) ? Reflect.get(of, name) : undefined
  } catch {
    return undefined
  }
}
