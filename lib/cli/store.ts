// The options that say where the locks are, and the client that they make.

import { readFileSync } from 'node:fs'
import type * as api from '../../index'
import type { LockClient } from '../client/client'
import { MOST_REPLICAS, STORE_TIMEOUTS } from '../client/client-options'
import { count, type Given, type OptionSpec, text } from './command'
import { UsageError } from './exits'
import { parseDuration } from './parse-duration'

export const STORE_OPTIONS: Readonly<Record<string, OptionSpec>> = {
  store: {
    type: 'string',
    short: 's',
    multiple: true,
    value: 'URL',
    help: 'where the locks are; three times or more for a quorum. Default: LEASEHOLD_URL, REDIS_URL, or a file of this user',
  },
  prefix: { type: 'string', value: 'TEXT', help: 'the prefix of every key at the store. Default lock:' },
  name: { type: 'string', value: 'NAME', help: 'the name that others see for this holder. Default HOST:PID' },
  'store-timeout': { type: 'string', value: 'TIME', help: 'how long one call to the store may take. Default 1s' },
  'min-replicas': {
    type: 'string',
    value: 'N',
    help: 'how many replicas must have a lease before it counts: 0 to 100. Default 0',
  },
  'tls-ca': { type: 'string', value: 'FILE', help: 'authorities to trust over TLS, instead of the system’s (PEM)' },
  'tls-cert': { type: 'string', value: 'FILE', help: 'our own certificate (PEM)' },
  'tls-key': { type: 'string', value: 'FILE', help: 'its private key (PEM)' },
}

/**
 * Returns the client options that the command line asks for; `more` are the command's own defaults.
 */
export function clientOptions(given: Given, more: api.LockClientOptions = {}): api.LockClientOptions {
  const options: api.LockClientOptions = { ...more }
  const stores = given.values.store as string[] | undefined
  if (stores !== undefined) options.store = stores.length === 1 ? (stores[0] as string) : stores
  const prefix = short(given, 'prefix')
  if (prefix !== undefined) options.prefix = prefix
  const name = short(given, 'name')
  if (name !== undefined) options.name = name
  const timeout = text(given, 'store-timeout')
  if (timeout !== undefined) options.storeTimeout = parseDuration('store-timeout', timeout, ...STORE_TIMEOUTS)
  const replicas = count(given, 'min-replicas', 0, 0, MOST_REPLICAS)
  if (replicas > 0) options.minReplicas = replicas
  const tls = { ca: read(given, 'tls-ca'), cert: read(given, 'tls-cert'), key: read(given, 'tls-key') }
  if (Object.values(tls).some((pem) => pem !== undefined)) options.tls = tls
  return options
}

/** Returns a client with these options. */
export function openClient(options: api.LockClientOptions): LockClient {
  // Loads the client here: a help text, or an error in the arguments, needs none.
  const { LockClient } = require('../client/client') as typeof import('../client/client')
  const locks = new LockClient(options)
  // The calls themselves fail with the errors that matter.
  locks.on('error', () => {})
  return locks
}

/** Runs `work` with a client, and closes the client after that. */
export async function withClient(
  given: Given,
  more: api.LockClientOptions,
  work: (locks: api.LockClient) => Promise<number>,
): Promise<number> {
  const locks = openClient(clientOptions(given, more))
  try {
    return await work(locks)
  } finally {
    await locks.close()
  }
}

/** Returns the value of an option of which the library takes up to 255 bytes. */
function short(given: Given, name: string): string | undefined {
  const value = text(given, name)
  if (Buffer.byteLength(value ?? '') > 255) throw new UsageError(`--${name} takes up to 255 bytes of UTF-8`)
  return value
}

function read(given: Given, name: string): string | undefined {
  const path = text(given, name)
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    // The "path" may be the text of a private key.
    if (path.includes('-----BEGIN')) throw new UsageError(`--${name} takes the name of a file, not its contents`)
    throw new UsageError(`--${name}: the file can't be read (${(error as NodeJS.ErrnoException).code})`)
  }
}
