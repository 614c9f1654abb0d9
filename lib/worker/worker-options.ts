// The options of a worker. See types/worker.d.ts for their meaning.

import type * as api from '../../index'
import { connectionHints, isLockClient } from '../client/store/foreign-client'
import {
  badType,
  badValue,
  checkFunction,
  checkKey,
  checkMs,
  checkMsOrInfinity,
  checkName,
  checkTtl,
  readOptions,
} from '../util/arguments'

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
    // The functions may be methods that need their `this`.
    startWork: startWork.bind(given),
    stopWork: (reason) => stopWork?.call(given, reason),
  }
}
