// The options of a client and of its methods. See types/client-options.d.ts for their meaning.

import { hostname } from 'node:os'
import { threadId } from 'node:worker_threads'
import type * as api from '../../index'
import { withFailFast } from '../lock/fail-fast'
import { type LockRequest, lockRequest } from '../lock/lock-request'
import type { ClientConfig } from '../native/addon'
import {
  badType,
  checkBoolean,
  checkMs,
  checkMsOrInfinity,
  checkName,
  checkNumber,
  checkText,
  checkTtl,
  readOptions,
} from '../util/arguments'
import { parseSignalNames } from './signals'
import { connectionHints } from './store/foreign-client'
import { refuseClients, resolveStores, storeVariable } from './store/store-urls'
import { parseTls } from './store/tls'

const MIN_STALL = 100
/**
 * How long close() waits for sections by default, in ms. `docker stop` kills after 10 s, the
 * shortest of the usual limits (Kubernetes and Heroku: 30 s). So after 8 s, when its signal aborts,
 * work has 2 s to stop and to release its lock. If this is larger, the work is killed before it can
 * react; if it is smaller, the signal aborts work that would have ended in time.
 */
const DRAIN = 8_000
/** The shortest and the longest `storeTimeout`, in ms. */
export const STORE_TIMEOUTS = [10, 60_000] as const
export const MOST_REPLICAS = 100

export interface ClientSettings {
  readonly config: ClientConfig
  /** The environment variable that names the store; `undefined` if no variable does. */
  readonly variable: string | undefined
  readonly defaults: LockRequest
  /** The time that close() waits for sections, in ms or `Infinity`. */
  readonly drain: number
  readonly releaseOnSignal: readonly NodeJS.Signals[]
}

const CLIENT_OPTIONS = [
  'store',
  'username',
  'password',
  'tls',
  'sentinelUsername',
  'sentinelPassword',
  'minReplicas',
  'prefix',
  'name',
  'ttl',
  'wait',
  'failFast',
  'maxStall',
  'storeTimeout',
  'handOffs',
  'drain',
  'releaseOnSignal',
] as const satisfies (keyof api.LockClientOptions)[]

export function parseClient(given: unknown): ClientSettings {
  const isStore = given === undefined || typeof given === 'string' || Array.isArray(given)
  if (!isStore && (typeof given !== 'object' || given === null)) {
    throw badType('store', 'the URL of a store (redis://host:6379), an array of URLs, or an object of options', given)
  }
  if (!isStore) refuseClients(given)
  const told = isStore ? { store: given } : given
  const options = readOptions<api.LockClientOptions>(told, CLIENT_OPTIONS, connectionHints(told))
  const { prefix = 'lock:', name = defaultName(), ttl = 10_000, wait = 10_000, maxStall = 60_000 } = options
  const { username, password, storeTimeout = 1_000, handOffs = 32, minReplicas = 0 } = options
  const { drain = DRAIN, failFast = false } = options
  checkText('prefix', prefix, 0, 255)
  checkName('name', name)
  checkTtl(ttl)
  checkMsOrInfinity('wait', wait, 0)
  checkBoolean('failFast', failFast)
  checkMsOrInfinity('maxStall', maxStall, MIN_STALL)
  checkMs('storeTimeout', storeTimeout, ...STORE_TIMEOUTS)
  checkNumber('handOffs', handOffs, 0, 1_000, true)
  checkNumber('minReplicas', minReplicas, 0, MOST_REPLICAS, true)
  checkMsOrInfinity('drain', drain, 0)
  const releaseOnSignal = parseSignalNames(options.releaseOnSignal ?? [])
  const stores = resolveStores(options.store)
  const config: ClientConfig = { stores, prefix, name, maxStall, storeTimeout, handOffs, minReplicas }
  if (username !== undefined) {
    checkText('username', username, 0, 1024)
    config.username = username
  }
  if (password !== undefined) {
    checkText('password', password, 0, 65_536)
    config.password = password
  }
  const { sentinelUsername, sentinelPassword } = options
  if (sentinelUsername !== undefined) {
    checkText('sentinelUsername', sentinelUsername, 0, 1024)
    config.sentinelUsername = sentinelUsername
  }
  if (sentinelPassword !== undefined) {
    checkText('sentinelPassword', sentinelPassword, 0, 65_536)
    config.sentinelPassword = sentinelPassword
  }
  if (options.tls !== undefined) config.tls = parseTls(options.tls)
  const variable = options.store === undefined ? storeVariable() : undefined
  const defaults = { ...lockRequest(ttl, wait), flags: withFailFast(0, failFast) }
  return { config, variable, defaults, drain, releaseOnSignal }
}

/** Returns the `drain` in the options of close(), if there is one. */
export function parseClose(given: unknown): number | undefined {
  if (given === undefined) return undefined
  const { drain } = readOptions<api.CloseOptions>(given, ['drain'])
  if (drain !== undefined) checkMsOrInfinity('drain', drain, 0)
  return drain
}

function defaultName(): string {
  const thread = threadId === 0 ? '' : `:${threadId}`
  return `${hostname().slice(0, 64)}:${process.pid}${thread}`
}

/** The largest `limit` of a listing. */
export const MOST_LISTED = 10_000

export function parseList(given: unknown): { pattern: string; limit: number } {
  if (given === undefined) return { pattern: '*', limit: 1_000 }
  const { pattern = '*', limit = 1_000 } = readOptions<api.ListOptions>(given, ['pattern', 'limit'])
  checkText('pattern', pattern, 0, 1024)
  checkNumber('limit', limit, 1, MOST_LISTED, true)
  return { pattern, limit }
}
