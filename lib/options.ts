// What callers may ask for, with the defaults filled in. See index.d.ts for the meaning of each.

import { hostname } from 'node:os'
import { threadId } from 'node:worker_threads'
import type * as api from '../index'
import {
  badType,
  badValue,
  checkBoolean,
  checkFunction,
  checkKey,
  checkMs,
  checkMsOrInfinity,
  checkName,
  checkNumber,
  checkSignal,
  checkText,
  checkTtl,
  MIN_TTL,
  outOfRange,
  readOptions,
} from './arguments'
import { connectionHints, isLockClient } from './foreign-client'
import { type ClientConfig, Flag, Most, withFailFast } from './native'
import { parseRetry, type Retry } from './retry'
import { parseSignalNames } from './signals'
import { refuseClients, resolveStores, storeVariable } from './store-urls'
import { parseTls } from './tls'

const MIN_STALL = 100
/**
 * How long close() waits for sections by default, in ms. `docker stop` kills after 10 s, the
 * shortest of the usual limits (Kubernetes and Heroku: 30 s). So after 8 s, when its signal aborts,
 * work has 2 s to stop and to release its lock. If this is larger, the work is killed before it can
 * react; if it is smaller, the signal aborts work that would have ended in time.
 */
const DRAIN = 8_000
/** From, to; in ms. */
export const STORE_TIMEOUTS = [10, 60_000] as const
export const MOST_REPLICAS = 100

/** What an acquire asks for. */
export interface Asked {
  readonly ttl: number
  /** −1: not at all. */
  readonly wait: number
  /** 0: for as long as it likes. */
  readonly maxHold: number
  /** See {@link Most}. */
  readonly most: number
  readonly flags: number
  /**
   * The `traceparent` (W3C) of the current trace, if there is one. The store shows it to everyone
   * who inspects the lock.
   */
  readonly trace: string | undefined
  /** Instead of a place in the queue. `wait` is then how long to go on. */
  readonly retry: Retry | undefined
  readonly signal: AbortSignal | undefined
  /**
   * Set if this is one key of a call for several keys: their count, and the `wait` for all of them.
   */
  readonly among: { readonly count: number; readonly wait: number } | undefined
}

/** What an acquire asks for that says no more than these. */
export function asking(ttl: number, wait: number): Asked {
  const nothing = { trace: undefined, retry: undefined, signal: undefined, among: undefined }
  return { ttl, wait, maxHold: 0, most: Most.Exclusive, flags: 0, ...nothing }
}

export interface ClientSettings {
  readonly config: ClientConfig
  /** The environment variable that names the store; `undefined` if no variable does. */
  readonly origin: string | undefined
  readonly asked: Asked
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
  checkMs('ttl', ttl, MIN_TTL)
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
  const origin = options.store === undefined ? storeVariable() : undefined
  const asked = { ...asking(ttl, wait), flags: withFailFast(0, failFast) }
  return { config, origin, asked, drain, releaseOnSignal }
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

/** The longest answer that a listing may be asked for. */
export const MOST_LISTED = 10_000

export function parseList(given: unknown): { pattern: string; limit: number } {
  if (given === undefined) return { pattern: '*', limit: 1_000 }
  const { pattern = '*', limit = 1_000 } = readOptions<api.ListOptions>(given, ['pattern', 'limit'])
  checkText('pattern', pattern, 0, 1024)
  checkNumber('limit', limit, 1, MOST_LISTED, true)
  return { pattern, limit }
}

const TRY_OPTIONS = ['ttl', 'signal', 'autoRenew', 'maxHold'] as const satisfies (keyof api.AcquireOptions)[]
const ACQUIRE_OPTIONS = [...TRY_OPTIONS, 'wait', 'retry', 'failFast'] as const

export function parseAcquire(given: unknown, defaults: Asked): Asked {
  const options = readOptions<api.AcquireOptions>(given, ACQUIRE_OPTIONS)
  const retry = options.retry === undefined ? undefined : parseRetry(options.retry)
  // Retries have a limit of their own.
  const { wait = retry === undefined ? defaults.wait : Number.POSITIVE_INFINITY } = options
  checkMsOrInfinity('wait', wait, 0)
  const { failFast } = options
  if (failFast === undefined) return parseLease(options, defaults, wait, retry)
  checkBoolean('failFast', failFast)
  return parseLease(options, { ...defaults, flags: withFailFast(defaults.flags, failFast) }, wait, retry)
}

/** What tryAcquire() takes, and adopt(). */
export function parseTry(given: unknown, defaults: Asked, notHere?: Readonly<Record<string, string>>): Asked {
  return parseLease(readOptions<api.TryAcquireOptions>(given, TRY_OPTIONS, notHere), defaults, -1)
}

function parseLease(given: api.TryAcquireOptions, defaults: Asked, wait: number, retry?: Retry): Asked {
  const { signal, maxHold, autoRenew = true } = given
  let { ttl } = given
  // If the caller sets a ttl, it does not come from a ticket.
  const flags = ttl === undefined ? defaults.flags : defaults.flags & ~Flag.TicketTtl
  if (ttl !== undefined) checkTtl(ttl)
  if (maxHold !== undefined) {
    checkMs('maxHold', maxHold, MIN_TTL)
    if (ttl !== undefined && maxHold < ttl) throw outOfRange('maxHold', `>= ttl, which is ${ttl}`, maxHold)
    ttl ??= Math.min(defaults.ttl, maxHold)
  }
  checkBoolean('autoRenew', autoRenew)
  if (signal !== undefined) checkSignal('signal', signal)
  return {
    ttl: ttl ?? defaults.ttl,
    wait,
    maxHold: maxHold ?? 0,
    most: defaults.most,
    flags: autoRenew ? flags : flags | Flag.NoRenewal,
    trace: undefined,
    retry,
    signal,
    among: undefined,
  }
}

const WORKER_OPTIONS = [
  'key',
  'client',
  'store',
  'prefix',
  'ttl',
  'retryInterval',
  'workerId',
  'stopTimeout',
  'startWork',
  'stopWork',
] as const satisfies (keyof api.LockWorkerOptions)[]

export interface WorkerSettings {
  readonly client: api.LockClient | undefined
  readonly store: string | readonly string[] | undefined
  readonly prefix: string | undefined
  readonly workerId: string | undefined
  readonly key: string
  readonly ttl: number | undefined
  readonly retryInterval: number
  readonly stopTimeout: number
  startWork(lease: api.Lease, signal: AbortSignal): unknown
  stopWork(reason: api.StopReason): unknown
}

export function parseWorker(given: api.LockWorkerOptions): WorkerSettings {
  if (isLockClient(given)) throw badType('options', 'an object', given, 'a lock client: give it as { client, key, … }')
  const {
    client,
    store,
    prefix,
    workerId,
    key,
    ttl,
    retryInterval = 5_000,
    stopTimeout = 10_000,
    startWork,
    stopWork,
  } = readOptions<api.LockWorkerOptions>(given, WORKER_OPTIONS, connectionHints(given))
  checkKey(key)
  if (ttl !== undefined) checkTtl(ttl)
  checkMs('retryInterval', retryInterval, 1)
  checkMsOrInfinity('stopTimeout', stopTimeout, 0)
  checkFunction('startWork', startWork)
  if (stopWork !== undefined) checkFunction('stopWork', stopWork)
  if (workerId !== undefined) checkName('workerId', workerId)
  const own = store !== undefined ? 'store' : prefix !== undefined ? 'prefix' : undefined
  if (client !== undefined && own !== undefined) {
    throw badValue(`The options "client" and "${own}" exclude each other: a client has its ${own}`)
  }
  return {
    client,
    store,
    prefix,
    workerId,
    key,
    ttl,
    retryInterval,
    stopTimeout,
    // They may be methods that want their `this`.
    startWork: startWork.bind(given),
    stopWork: (reason) => stopWork?.call(given, reason),
  }
}
