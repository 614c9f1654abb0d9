// The public interface: the one place where it is written down. lib/ implements these types, so the
// two cannot drift apart (__test__/types/exports.ts checks that nothing is missing on either side).
//
// This file has the two functions. The files in types/ have the rest:
//
// - client, client-options and client-events: the client, its options and its events.
// - options: the kinds of locks, and the options of calls.
// - lease: what a caller holds.
// - once: work that is done once in the cluster.
// - info: what a client reports about a lock, about itself and about its store.
// - worker: lock workers.
// - emitter: the methods for events of clients, workers and schedules.
// - tls, errors, channels (of `diagnostics_channel`) and units (of durations).
// - otel and prometheus: `leasehold/otel` and `leasehold/prometheus`.
// - express, remix and http: `leasehold/express`, `leasehold/remix`, and what they share.
//
// Every time is in milliseconds, and its type says so. Times that you pass are whole; times that
// you get may not be. If an argument is bad, methods that return promises reject with a TypeError
// or RangeError, and callbacks get this error. createLockClient(), createLockWorker(), semaphore()
// and readWriteLock() throw it. In all cases, the client has sent nothing. An option that is
// `undefined` has its default.

import type { LockClient } from './types/client'
import type { LockClientOptions } from './types/client-options'
import type { LockWorker, LockWorkerOptions } from './types/worker'

export * from './types/channels'
export * from './types/client'
export * from './types/client-events'
export * from './types/client-options'
export * from './types/emitter'
export * from './types/errors'
export * from './types/info'
export * from './types/lease'
export * from './types/once'
export * from './types/options'
export * from './types/tls'
export * from './types/units'
export * from './types/worker'

/**
 * Opens a client on a store. The client connects with the first call; see {@link LockClient.ready}.
 *
 * @param store Where the leases live, or an object with that and more. Default: the environment
 * variable `LEASEHOLD_URL`, then `REDIS_URL`, then an SQLite file in a directory of the user's own
 * below the temporary directory, for the processes of one host. Several URLs in such a variable,
 * with blanks between them, are a quorum.
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: a malformed URL, an
 * unknown option, or no store although `NODE_ENV` is `production`, where a lock that silently is
 * not distributed is worse than none
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * const locks = createLockClient('redis://localhost')
 * await locks.withLock('invoice:42', async (lease) => {
 *   await save(invoice, { fence: lease.fence })
 * })
 * await locks.close()
 */
export function createLockClient(store?: string | readonly string[] | LockClientOptions): LockClient

/**
 * Creates a worker that campaigns for a lock and runs `startWork` while it holds the lock. The
 * worker is idle until {@link LockWorker.start}.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * const worker = createLockWorker({
 *   key: 'mail-queue',
 *   async startWork(lease, signal) {
 *     while (!signal.aborted) await sendNextMail(lease.fence)
 *   },
 * })
 * worker.start()
 * process.once('SIGTERM', () => worker.stop())
 */
export function createLockWorker(options: LockWorkerOptions): LockWorker
