// The public interface: the one place where it is written down. lib/ implements these types, so the two
// cannot drift apart (__test__/types/exports.ts checks that nothing is missing on either side).
//
// Every time is in whole milliseconds. Promise-returning methods reject, also with the TypeError or
// RangeError of a bad argument; createLockClient() and createLockWorker() throw. Either way nothing has been sent.
// An option that is `undefined` has its default.

import type { EventEmitter } from 'node:events'

/**
 * Opens a client on a store. Nothing is connected until the first call; see {@link LockClient.ready}.
 *
 * @param store Where the leases live, or an object with that and more. When it is missing: the environment
 * variable `LEASEHOLD_URL`, then `REDIS_URL`, then an SQLite file in a directory of the user's own below the
 * temporary directory, which excludes the processes of one host.
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: a malformed URL, an unknown option, or no
 * store is named although `NODE_ENV` is `production`, where a lock that silently is not distributed is worse than none
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * const locks = createLockClient('redis://localhost')
 * await locks.withLock('invoice:42', async (lease) => {
 *   await save(invoice, { fence: lease.fence })
 * })
 * await locks.close()
 */
export function createLockClient(store?: string | LockClientOptions): LockClient

/**
 * Makes a worker that campaigns for a lock and runs `startWork` while it holds it. It is idle until
 * {@link LockWorker.start}.
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
 * server.on('close', () => worker.stop())
 */
export function createLockWorker(options: LockWorkerOptions): LockWorker

/** What {@link createLockClient} takes. */
export interface LockClientOptions {
  /**
   * `memory:NAME` (this process and its worker threads), `sqlite:PATH` (every process of this host),
   * `redis://[user:password@]host[:port][/db]` or `redis+unix:///path/to/socket`. For the default see
   * {@link createLockClient}. A password in it never appears in a message.
   */
  store?: string | undefined
  /** Redis user name, if it is not in the URL. */
  username?: string | undefined
  /** Redis password, if it is not in the URL. */
  password?: string | undefined
  /** Put before every key at the store; up to 255 bytes of UTF-8. Default `lock:`. */
  prefix?: string | undefined
  /** Shown to whoever inspects a lock that this client holds; 1 to 255 bytes. Default `HOSTNAME:PID`. */
  name?: string | undefined
  /** How long a lease lives without renewal: 10 to 2 147 483 647. Default 10 000. */
  ttl?: number | undefined
  /** How long {@link LockClient.acquire} waits: 0 to 2 147 483 647, or `Infinity`. Default 10 000. */
  wait?: number | undefined
  /**
   * Renewal goes on while the JavaScript thread is blocked, but no longer than this, so that a hung process
   * does not hold for ever: 100 to 2 147 483 647, or `Infinity`. Default 60 000.
   */
  maxStall?: number | undefined
  /** How long one call to the store may take: 10 to 60 000. Default 1000. */
  storeTimeout?: number | undefined
  /**
   * Signals upon which the client is closed, and its leases thereby released. If nobody else listens to the
   * signal, the process then ends of it, as it would have. Main thread only. Default none.
   */
  releaseOnSignal?: NodeJS.Signals[] | undefined
}

/** Acquires locks at one store. */
export interface LockClient extends EventEmitter<LockClientEvents> {
  /**
   * Acquires the lock, waiting for it if somebody else holds it. The lease is renewed by itself until it is
   * released, lost, or `maxHold` old. A pending call keeps the process alive; a held lease does not.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @throws {LockTimeoutError} somebody held it for all of `wait`
   * @throws {StoreUnavailableError} the store could not be reached, or not be used; passing faults are
   * retried for as long as `wait` allows
   * @throws {LockAbortedError} `signal` was aborted
   * @throws {LockLostError} the lease ended before it could be handed over: this thread was blocked for longer
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const lease = await locks.acquire('report', { wait: 500, signal: request.signal })
   * try { await write(lease) } finally { await lease.release() }
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lease>

  /** Like {@link acquire}, but never waits: `null` if somebody else holds the lock, and a fault is not retried. */
  tryAcquire(key: string, options?: TryAcquireOptions): Promise<Lease | null>

  /**
   * Acquires the lock, runs `fn` with the lease, and releases it. What `fn` throws is what comes out, whatever
   * becomes of the release. A release that fails after `fn` succeeded is told by the `'error'` event only: the
   * lease then ends by its ttl. Not reentrant: who holds the lock waits for it like anybody else.
   *
   * @returns what `fn` returns
   * @throws {LockLostError} the lease was lost while `fn` ran, although `fn` succeeded
   * @throws what {@link acquire} throws
   */
  withLock<T>(key: string, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(key: string, options: AcquireOptions | undefined, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>

  /**
   * Tells who holds a lock; `null` if nobody does.
   *
   * @throws {StoreUnavailableError}
   * @throws {LockClosedError}
   */
  inspect(key: string): Promise<LockInfo | null>

  /** What this client did so far. */
  stats(): LockStats

  /**
   * Resolves when the store was reached and can be used. Calling it is not required.
   *
   * @throws {StoreUnavailableError}
   * @throws {LockClosedError}
   */
  ready(): Promise<void>

  /**
   * Ends the client. What is pending rejects with {@link LockClosedError}; what is held is released, and its
   * holder told with a {@link LockLostError} of reason `closed`. Resolves when that is done, or after 500 ms at
   * an unreachable store. Never rejects; a second call returns the same promise.
   */
  close(): Promise<void>

  /** {@link close}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The events of a {@link LockClient}. */
export interface LockClientEvents {
  /** A lease was lost: its holder did not want that. Not told of one that no caller of acquire received. */
  lost: [lease: Lease, error: LockLostError]
  /** A release that nobody waits for failed. Not thrown when there is no listener. */
  error: [error: LockError]
}

/** What {@link LockClient.acquire} takes beside the key. */
export interface AcquireOptions {
  /** How long the lease lives without renewal. Default: the client's, or `maxHold` if that is shorter. */
  ttl?: number | undefined
  /** How long to wait: 0 to 2 147 483 647, or `Infinity`. Default: the client's. */
  wait?: number | undefined
  /** Ends the waiting: the call rejects with {@link LockAbortedError}, and a grant on its way is given back. */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /** How long the lease may be held in all, `ttl` to 2 147 483 647. It is then lost as `expired`. Default: no limit. */
  maxHold?: number | undefined
}

/** What {@link LockClient.tryAcquire} takes beside the key. */
export type TryAcquireOptions = Omit<AcquireOptions, 'wait'>

/**
 * One tenure of a lock. Inspecting or serializing it never shows the token.
 */
export interface Lease {
  /** Which lock. */
  readonly key: string
  /**
   * The value that proves ownership at the store; a secret. Empty when it is first asked for after the lease
   * has ended.
   */
  readonly token: string
  /**
   * Grows with every lease of this key. Hand it to the storage that the lock protects and let that refuse a
   * smaller one than it has seen, so that a write that comes late does no harm. About 2 · 10^15 and below 2^53: a
   * column for it is a `BIGINT`.
   */
  readonly fence: number
  /** How long it lives without renewal. */
  readonly ttl: number
  /** Whether it is held now. Read from the clock, so it is true even right after a blocked event loop. */
  readonly isHeld: boolean
  /** How much longer it is held without another renewal; 0 when it is not held. */
  readonly remaining: number
  /** Aborts with a {@link LockLostError} when the lease is lost; not when it is released. */
  readonly signal: AbortSignal
  /**
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released
   */
  assertHeld(): void
  /**
   * Renews it now. Only needed with `autoRenew: false`, or for another ttl. Never makes it end earlier than it
   * would have: a shorter ttl takes effect with the renewals after this one.
   *
   * @param ttl its ttl from now on, 10 to 2 147 483 647. Default: the one it has.
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released
   * @throws {StoreUnavailableError} the store could not be reached; the lease still lives until its deadline
   */
  renew(ttl?: number): Promise<void>
  /**
   * Gives it back. A second call returns the same promise. A rejection that nobody handles does no harm.
   *
   * @returns `true` if it was given back, `false` if it was lost before
   * @throws {StoreUnavailableError} the store could not be reached: the lease is not held any more, and its
   * release is tried again until it would have ended by its ttl
   */
  release(): Promise<boolean>
  /** {@link release}, for `await using`. Never rejects: a failure is the client's `'error'` event. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Who holds a lock, as {@link LockClient.inspect} tells. */
export interface LockInfo {
  /** The holder's {@link LockClientOptions.name}; `null` if another library holds the key. */
  holder: string | null
  /** The lease's fence; `null` if another library holds the key. */
  fence: number | null
  /** When the lease ends without renewal; `null` if it never does (another library's key without expiry). */
  remaining: number | null
  /** How many wait for it in this process. */
  waiters: number
}

/** Counters of one client since it was created. */
export interface LockStats {
  /** Leases held now. */
  held: number
  /** Acquires pending now. */
  waiting: number
  /** Leases granted. */
  acquired: number
  /** Leases given back by their holder. */
  released: number
  /** Leases lost. */
  lost: number
  /** Looks at the store that found the lock held by somebody else. */
  contended: number
  /** Acquires whose `wait` was over. */
  timeouts: number
  /** Acquires that were aborted. */
  aborted: number
  /** Successful renewals. */
  renewals: number
  /** Requests that the store answered with an error, or not at all. */
  errors: number
}

/** What {@link createLockWorker} takes. */
export interface LockWorkerOptions {
  /** The client to use; it is left open. Either this or `store`. */
  client?: LockClient | undefined
  /** Where the lock lives, for a client of the worker's own. Default: as for {@link createLockClient}. */
  store?: string | undefined
  /** Which lock: 1 to 1024 bytes of well-formed Unicode without NUL. */
  key: string
  /** How long a lease lives without renewal: 10 to 2 147 483 647. Default: the client's. */
  ttl?: number | undefined
  /**
   * How often to look again while somebody else holds the lock, and how long to rest when the store cannot be
   * reached, `startWork` failed or the lease was released under it: 1 to 2 147 483 647. That somebody else releases
   * the lock is noticed without it. Default 5000.
   */
  retryInterval?: number | undefined
  /** Tells this worker from others; 1 to 255 bytes. Names the worker's own client. Default: a random UUID. */
  workerId?: string | undefined
  /** How long the end of the work is waited for: 0 to 2 147 483 647, or `Infinity`. Default 10 000. */
  stopTimeout?: number | undefined
  /**
   * Begins the work; called once per tenure. Its promise may be that of the beginning or that of the whole
   * work: when it resolves, the worker still holds the lease. When it rejects, at any time, the work has failed:
   * `stopWork` runs, the lease is released and others get their chance for `retryInterval`. To release the lease
   * ends the tenure likewise, as `released`.
   *
   * @param signal aborts when the work has to end, for whatever reason
   */
  startWork(lease: Lease, signal: AbortSignal): unknown
  /**
   * Ends the work; called once for each `startWork`. The lease is neither released nor campaigned for again until
   * its promise and that of `startWork` have settled, or `stopTimeout` is over (an `'error'` event).
   */
  stopWork?: ((reason: StopReason) => unknown) | undefined
}

/** Campaigns for a lock and works while it holds it. While it is started it keeps the process alive. */
export interface LockWorker extends EventEmitter<LockWorkerEvents> {
  /** What it is doing. */
  readonly state: WorkerState
  /** Which one it is. */
  readonly workerId: string
  /** The lease that it holds now, if it does. */
  readonly lease: Lease | null
  /** Begins to campaign. Does nothing if it does so already. While it stops, it starts again after that. */
  start(): this
  /** Ends the work, releases the lease, and resolves when that is done. Never rejects. */
  stop(): Promise<void>
  /** {@link stop}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** The events of a {@link LockWorker}. */
export interface LockWorkerEvents {
  /** It does something else now. */
  state: [state: WorkerState, previous: WorkerState]
  /** It holds the lock; `startWork` is next. */
  acquired: [lease: Lease]
  /** The lease was renewed. */
  renewed: [lease: Lease]
  /** The lease was lost; `stopWork` is next. */
  lost: [lease: Lease, error: LockLostError]
  /** The lease was given back, and its work has ended. */
  released: [lease: Lease]
  /** Something failed: the store, `startWork`, `stopWork`. It goes on anyway. Not thrown without a listener. */
  error: [error: unknown]
}

/**
 * `idle`: not started. `acquiring`: asks for the lock. `waiting`: in line for it, or resting after a failure.
 * `working`: holds it. `pausing`: ends its work because the lease was lost or released, or `startWork` failed. `cleanup`:
 * ends its work because it was stopped. `releasing`: gives the lease back.
 */
export type WorkerState = 'idle' | 'acquiring' | 'waiting' | 'working' | 'pausing' | 'cleanup' | 'releasing'

/**
 * Why work has to end: `stopped` by {@link LockWorker.stop}, `failed` by itself, `released` by somebody who called
 * {@link Lease.release} (or left an `await using` of the lease), or why the lease was lost.
 */
export type StopReason = 'stopped' | 'failed' | 'released' | LossReason

/**
 * Why a lease was lost. `expired`: not renewed in time, or `maxHold` old. `taken`: somebody else holds it now. `missing`:
 * the store knows nothing of it. `stalled`: this thread was blocked for longer than `maxStall`. `closed`: the client was.
 */
export type LossReason = 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'

/**
 * What is wrong with a store. These may pass by themselves: `unreachable` (no connection), `timeout` (no answer in
 * `storeTimeout`), `loading` (starting, or busy), `readonly` (a replica), `full` (memory or disk). These do not:
 * `denied` (user, password, rights), `unsupported` (nothing that can be used), `wrongtype` (the key is something
 * else), `internal` (a bug).
 */
export type StoreUnavailableReason =
  | 'unreachable'
  | 'timeout'
  | 'loading'
  | 'readonly'
  | 'full'
  | 'denied'
  | 'unsupported'
  | 'wrongtype'
  | 'internal'

/** What every error of this library is, bad arguments aside. Code `ERR_LOCK_RELEASED` if it is nothing more special. */
export class LockError extends Error {
  constructor(code: string, message: string, options?: LockErrorOptions)
  readonly code: string
  /** Which lock, if it is about one. */
  readonly key?: string
}

/** What the constructors of errors take. */
export interface LockErrorOptions extends ErrorOptions {
  key?: string | undefined
}

/** Code `ERR_LOCK_TIMEOUT`: somebody else held the lock for all of `wait`; or work did not end in `stopTimeout`. */
export class LockTimeoutError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_TIMEOUT'
}

/** Code `ERR_LOCK_LOST`: the lease is not held any more, and its holder did not want that. */
export class LockLostError extends LockError {
  constructor(reason: LossReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_LOST'
  readonly reason: LossReason
}

/** Code `ERR_LOCK_ABORTED`: the caller's signal was aborted; its reason is the `cause`. */
export class LockAbortedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_ABORTED'
}

/** Code `ERR_STORE_UNAVAILABLE`: the store could not be reached, or not be used. */
export class StoreUnavailableError extends LockError {
  constructor(reason: StoreUnavailableReason, message: string, options?: LockErrorOptions)
  readonly code: 'ERR_STORE_UNAVAILABLE'
  readonly reason: StoreUnavailableReason
}

/** Code `ERR_LOCK_CLOSED`: the client was closed. */
export class LockClosedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_CLOSED'
}
