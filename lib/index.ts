// The entry of the package: exports what index.d.ts declares, and nothing else.
//
// The map of lib/, in reading order. A folder imports only folders above it, and no files import
// each other in a circle:
//
// - util: knows nothing of leases: arguments, clocks, promises, abort signals, text.
// - native: loads the addon, sends it operations, and delivers its records.
// - diagnostics: errors, what they say about a held lock, channels, traces, and warnings.
// - lock: leases, the ways to acquire them, and sections that run under them. In lock/schedule:
//   tasks that are done once, and jobs at the ticks of a cron pattern.
// - client: opens and closes clients. In client/store: the URLs of stores.
// - worker: campaigns for a lock, and works while it holds the lock.
// - integrations: leasehold/otel, /prometheus, /express and /remix.
// - cli: the program `leasehold`.

import type * as api from '../index'
import { LockClient } from './client/client'
import { badValue, inCall } from './util/arguments'
import { LockWorker } from './worker/worker'

export {
  LockAbortedError,
  LockClosedError,
  LockError,
  LockLostError,
  LockTimeoutError,
  QuorumError,
  StoreUnavailableError,
} from './diagnostics/errors'

export function createLockClient(
  store?: string | readonly string[] | api.LockClientOptions,
  ...more: unknown[]
): api.LockClient {
  if (more.some((argument) => argument !== undefined)) {
    if ([store, ...more].some((argument) => typeof argument === 'number')) {
      throw badValue("createLockClient() takes one argument: write host and port as one URL, 'redis://HOST:PORT'")
    }
    throw badValue('createLockClient() takes one argument: with options, the store is one of them, { store, … }')
  }
  return inCall('createLockClient', () => new LockClient(store))
}

export function createLockWorker(options: api.LockWorkerOptions): api.LockWorker {
  return inCall('createLockWorker', () => new LockWorker(options))
}
