// The package's entry: what index.d.ts declares, and nothing else.

import type * as api from '../index'
import { badValue } from './arguments'
import { LockClient } from './client'
import { LockWorker } from './worker'

export {
  LockAbortedError,
  LockClosedError,
  LockError,
  LockLostError,
  LockTimeoutError,
  QuorumError,
  StoreUnavailableError,
} from './errors'

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
  return new LockClient(store)
}

export function createLockWorker(options: api.LockWorkerOptions): api.LockWorker {
  return new LockWorker(options)
}
