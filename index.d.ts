// The public interface: the one place where it is written down. lib/ implements these types, so the two
// cannot drift apart (__test__/types/exports.ts checks that nothing is missing on either side).
//
// In this order: the two functions, createLockClient() and createLockWorker(); LockClient, its options and events; what may be
// asked for (AcquireOptions, RetryOptions, AdoptOptions, LockCallback); what is asked (Lock, Semaphore, ReadWriteLock);
// what is held (Lease, MultiLease); what is told (LockInfo, LockStats, StoreHealth, Diagnosis); LockWorker; the errors.
//
// Every time is in milliseconds; those that are given are whole, those that are told may not be. Promise-returning
// methods reject, also with the TypeError or RangeError of a bad argument, and callbacks are called with it;
// createLockClient(), createLockWorker(), semaphore() and readWriteLock() throw. Either way nothing has been sent.
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
export function createLockClient(store?: string | readonly string[] | LockClientOptions): LockClient

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
   * `redis://[user:password@]host[:port][/db]`, the same with `rediss://` for TLS, `redis+unix:///path/to/socket`,
   * `redis-sentinel://[user:password@]host[:port][,host[:port]…]/MASTER[?db=N]` (`rediss-sentinel://` for TLS), where the hosts
   * are sentinels, on port 26379 by default, and the login is the master's, or
   * `redis-cluster://[user:password@]host[:port][,host[:port]…]` (some nodes, which tell of the others). For the default see
   * {@link createLockClient}. A password in it never appears in a message.
   *
   * Three or more URLs of independent servers, better an odd number, are a quorum: a lease is one that most of them have
   * granted, and fewer than half of them may fail (Redlock, with fences). They must keep their data over a restart, or
   * stay away for the longest `ttl`; see the README.
   */
  store?: string | readonly string[] | undefined
  /** Redis user name, if it is not in the URL. */
  username?: string | undefined
  /** Redis password, if it is not in the URL. */
  password?: string | undefined
  /** Whom to trust and who to be at a store that is reached by TLS (`rediss://`, `rediss-sentinel://`). */
  tls?: TlsOptions | undefined
  /** User name at the sentinels, if they want one. Only for `redis-sentinel://`, as `sentinelPassword`. */
  sentinelUsername?: string | undefined
  /** Password at the sentinels, if they want one. */
  sentinelPassword?: string | undefined
  /**
   * How many replicas of a Redis master must have a lease before it is granted, and a renewal before it counts: 0 to 100.
   * With 1, a failover to the replica that is furthest loses no lease. Each grant then takes the replicas' round trip
   * longer; while too few answer, none is granted and those that are held run out (`StoreUnavailableError`, reason
   * `timeout`). A request waits up to half of its time-out for them. Default 0.
   */
  minReplicas?: number | undefined
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
   * How many times in a row a lock may be handed on within this process, without asking the store: so often, and for up
   * to 10 ms, before it asks whether others wait; and so often, and for up to 10 ms, in a turn while they do. 0 is never:
   * then everybody is served strictly in the order of arrival, at one round trip each. 0 to 1000, default 32.
   */
  handOffs?: number | undefined
  /**
   * Signals upon which the client is closed, and its leases thereby released. If nobody else listens to the
   * signal, the process then ends of it, as it would have. Main thread only. Default none.
   */
  releaseOnSignal?: NodeJS.Signals[] | undefined
}

/**
 * Whom to trust over TLS, and who to be: as with Node's `tls.connect()`, the texts themselves (PEM), not the names of files.
 * A certificate, key or name that can't be used is a `TypeError` at once.
 *
 * The server's certificate is always verified, and must be made for the host in the URL: who could pretend to be the server
 * could grant every lock to everybody. If the certificate is of your own making, do not look for a way to switch that off,
 * give `ca`.
 */
export interface TlsOptions {
  /**
   * Certificates of the authorities to trust, instead of those that the system trusts (or those that the environment
   * variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name): one text may have many.
   */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[] | undefined
  /** The certificate to show to a server that wants one, and behind it those that lead to its authority. Needs `key`. */
  cert?: string | Uint8Array | undefined
  /** The private key of `cert`, not encrypted: PKCS#8, PKCS#1 or SEC1. It never appears in a message. */
  key?: string | Uint8Array | undefined
  /** The host name or IP address that the server's certificate must be made for. Default: the host in the URL. */
  servername?: string | undefined
  /** Not there: give `ca`. */
  rejectUnauthorized?: never
}

/** Acquires locks at one store. */
export interface LockClient extends EventEmitter<LockClientEvents> {
  /**
   * Acquires the lock, waiting for it if somebody else holds it: first come, first served, in all processes
   * together (see {@link LockClientOptions.handOffs}). The lease is renewed by itself until it is released, detached, lost,
   * or `maxHold` old. A pending call keeps the process alive; a held lease does not.
   *
   * Given several keys, it acquires all of their locks or none: one after the other, in the order of their UTF-16 units and
   * each once, so that no two who want some of the same ones wait for each other for ever. `wait` is for all of them
   * together. When one can't be had, or a lease is lost meanwhile, those that were acquired are released before the call
   * rejects; when it is aborted, at the same time.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @param keys Which locks: at least one.
   * @throws {LockTimeoutError} somebody held it for all of `wait`, or whenever it was tried: see {@link AcquireOptions.retry}
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached, or not be used; passing faults are
   * retried for as long as `wait` allows
   * @throws {LockAbortedError} `signal` was aborted
   * @throws {LockLostError} the lease ended before it could be handed over: this thread was blocked for longer, or it was one of
   * several and lost while the others were waited for
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const lease = await locks.acquire('report', { wait: 500, signal: request.signal })
   * try { await write(lease) } finally { await lease.release() }
   */
  acquire(key: string, options?: AcquireOptions): Promise<Lease>
  /** The same for several keys: all or none. */
  acquire(keys: readonly string[], options?: AcquireOptions): Promise<MultiLease>

  /**
   * Like {@link acquire}, but never waits: `null` if somebody else holds the lock, or waits for it; a fault is not
   * retried. Of several keys all or none: `null` when the others are released again.
   */
  tryAcquire(key: string, options?: TryAcquireOptions): Promise<Lease | null>
  /** The same for several keys: all or none. */
  tryAcquire(keys: readonly string[], options?: TryAcquireOptions): Promise<MultiLease | null>

  /**
   * Acquires the lock, runs `fn` with the lease, and releases it. What `fn` throws is what comes out, whatever
   * becomes of the release. A release that fails after `fn` succeeded is told by the `'error'` event only: the
   * lease then ends by its ttl. Not reentrant: who holds the lock waits for it like anybody else. `fn` may
   * {@link Lease.detach} or release the lease itself.
   *
   * A function that declares three parameters or more is a {@link LockCallback}: then nothing is returned, the function
   * gets an error or a lease, and the lease is released when it says so. Until then the process is kept alive.
   *
   * @returns what `fn` returns
   * @throws {LockLostError} the lease was lost while `fn` ran, although `fn` succeeded
   * @throws what {@link acquire} throws
   * @example
   * const total = await locks.withLock(['account:1', 'account:2'], (leases) => transfer(leases.fences))
   * @example
   * locks.withLock('report', (error, lease, done) => {
   *   if (error) return respond(error)
   *   writeReport(lease.fence, (error) => done(error, respond))
   * })
   */
  withLock<T>(key: string, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(key: string, options: AcquireOptions | undefined, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  /** The same for several keys: all or none. */
  withLock<T>(keys: readonly string[], fn: (lease: MultiLease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(
    keys: readonly string[],
    options: AcquireOptions | undefined,
    fn: (lease: MultiLease) => T | PromiseLike<T>,
  ): Promise<T>
  /** The same in the style of callbacks. */
  withLock(key: string, fn: LockCallback): void
  withLock(key: string, options: AcquireOptions | undefined, fn: LockCallback): void
  withLock(keys: readonly string[], fn: LockCallback<MultiLease>): void
  withLock(keys: readonly string[], options: AcquireOptions | undefined, fn: LockCallback<MultiLease>): void

  /**
   * A lock that `permits` may hold at a time, in whatever processes. Whoever asks for it counts those who hold it
   * against its own `permits`, so all should name the same number: while it is being changed, those who say more come in
   * beside those who say less, and wait behind one who says less and finds it full. It is the lock of that key: while {@link acquire}
   * holds that, nobody else does, and in the queue none overtakes another. Making one asks nothing of the store.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @param permits 1 to 1 000 000.
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const uploads = locks.semaphore('uploads', 5)
   * await uploads.withLock({ wait: 60_000 }, () => upload(file))
   */
  semaphore(key: string, permits: number): Semaphore

  /**
   * A lock that many may hold to read, or one alone to write. First come, first served: who asks to read after
   * somebody who waits to write waits behind, so that writers do not starve. Making one asks nothing of the store.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const config = locks.readWriteLock('config')
   * const lease = await config.read.acquire()
   */
  readWriteLock(key: string): ReadWriteLock

  /**
   * Goes on with a lease that was detached, here or in another process: the same lock, the same fence. Of several who
   * try, exactly one gets it. The client needs the store and the `prefix` of the one that detached it.
   *
   * @param ticket What {@link Lease.detach} resolved with.
   * @throws {LockLostError} somebody else adopted it, or nobody did before it ended
   * @throws {StoreUnavailableError} the store could not be reached for all of `ttl`, or not be used; what may have been
   * adopted is released
   * @throws {LockAbortedError} `signal` was aborted; if the lease was adopted already it is released
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`: it is no such ticket, or not a whole one
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * process.on('message', async ({ ticket }) => {
   *   const lease = await locks.adopt(ticket)
   *   try { await work(lease) } finally { await lease.release() }
   * })
   */
  adopt(ticket: string, options?: AdoptOptions): Promise<Lease>

  /**
   * Tells who holds a lock, and who waits for it; `null` if nobody holds it.
   *
   * @throws {StoreUnavailableError}
   * @throws {LockClosedError}
   */
  inspect(key: string): Promise<LockInfo | null>

  /** What this client did so far, and how its servers are. */
  stats(): LockStats

  /**
   * Looks at the store and tells in plain words what may go wrong with locks there, for leases of the client's `ttl`. A store
   * that can't be reached or used is a finding, not an error. Reads settings and asks for the time a few times; changes nothing.
   *
   * @throws {LockClosedError}
   * @example
   * for (const { level, store, message } of (await locks.diagnose()).findings) console.log(level, store, message)
   */
  diagnose(): Promise<Diagnosis>

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
  /**
   * A release that nobody waits for failed: a {@link LockError}; or a callback said `done(error)` without a callback to
   * take that. Not thrown when there is no listener.
   */
  error: [error: NodeJS.ErrnoException]
  /**
   * The circuit breaker before a server of the store has changed its state: see {@link StoreHealth}. Told at once of a server
   * that is already known to be gone when the client is opened. While a server is gone and somebody asks for it, `half-open`
   * and `open` take turns, up to a few times a second.
   */
  breaker: [health: StoreHealth]
}

/** What {@link LockClient.acquire} takes beside the key. */
export interface AcquireOptions {
  /** How long the lease lives without renewal. Default: the client's, or `maxHold` if that is shorter. */
  ttl?: number | undefined
  /** How long to wait: 0 to 2 147 483 647, or `Infinity`. Default: the client's; with `retry`, `Infinity`. */
  wait?: number | undefined
  /**
   * Instead of waiting in the queue: tries, and tries again after growing pauses. Whoever waits in the queue comes
   * first, so this is for locks that are seldom held for long, or work that may as well not be done. It ends when
   * `retries` are used up or `wait` is over, whichever is first, after a last try. A fault of the store that may pass
   * counts as a try in vain, and is what the call rejects with if it came of the last one. `true`: all the defaults.
   */
  retry?: true | RetryOptions | undefined
  /** Ends the waiting: the call rejects with {@link LockAbortedError}, and a grant on its way is given back. */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /** How long the lease may be held in all, `ttl` to 2 147 483 647. It is then lost as `expired`. Default: no limit. */
  maxHold?: number | undefined
}

/** What {@link LockClient.tryAcquire} takes beside the key. */
export type TryAcquireOptions = Omit<AcquireOptions, 'wait' | 'retry'>

/** How {@link AcquireOptions.retry} tries again. */
export interface RetryOptions {
  /** How often it tries again after the first time: 0 to 2 147 483 647, or `Infinity`. Default 10. */
  retries?: number | undefined
  /** The first pause: 1 to 2 147 483 647. Default 50. */
  minDelay?: number | undefined
  /** No pause gets longer than this, `jitter` aside: `minDelay` to 2 147 483 647. Default 1000, or `minDelay` if that is more. */
  maxDelay?: number | undefined
  /** How many times longer each pause is than the one before it: 1 to 100, fractions allowed. Default 2. */
  factor?: number | undefined
  /**
   * By what part of itself a pause is longer or shorter at random, so that those who met once do not meet again: 0 to 1.
   * `true` is 0.5, that is ± 50 %; `false` is 0. Default `true`.
   */
  jitter?: boolean | number | undefined
}

/** What {@link LockClient.adopt} takes beside the ticket. */
export interface AdoptOptions {
  /** How long the lease lives without renewal from now on. Default: the one it had, or `maxHold` if that is shorter. */
  ttl?: number | undefined
  /** Ends the call: it rejects with {@link LockAbortedError}, and what was adopted is released. */
  signal?: AbortSignal | undefined
  /** Whether the lease is renewed until it is released. Default `true`. */
  autoRenew?: boolean | undefined
  /**
   * How long the lease may be held from now on, `ttl` to 2 147 483 647. It is then lost as `expired`. Default: no limit,
   * whatever limit it had before.
   */
  maxHold?: number | undefined
}

/**
 * Work under a lock in the style of callbacks: called once, with an error or with the lease. The errors are those
 * with which the promise would reject. What it throws is an uncaught exception, after the lease was released.
 *
 * In TypeScript the function has to be declared as one, or its parameters with their types: the compiler does not tell it
 * from a function of a lease by the number of its parameters.
 *
 * @example
 * const work: LockCallback = (error, lease, done) => {
 *   if (!lease) return done(error)
 *   save(invoice, lease.fence, done)
 * }
 * locks.withLock('invoice:42', work)
 */
export type LockCallback<L = Lease> = (error: Error | null, lease: L | undefined, done: Done) => void

/**
 * Ends the work under a lock: releases the lease. Only the first call counts.
 *
 * @param error what went wrong with the work, if something did
 * @param callback called when the lease was released, with `null`; or with `error`; or with what went wrong with the
 * release, which may be a {@link LockLostError}: the work may not have been alone. Without it an error is the client's
 * `'error'` event.
 */
export interface Done {
  (error?: Error | null, callback?: (error: Error | null) => void): void
  (callback: (error: Error | null) => void): void
}

/** One lock, and the ways to it. */
export interface Lock {
  /** Which lock. */
  readonly key: string
  /** See {@link LockClient.acquire}. */
  acquire(options?: AcquireOptions): Promise<Lease>
  /** See {@link LockClient.tryAcquire}. */
  tryAcquire(options?: TryAcquireOptions): Promise<Lease | null>
  /** See {@link LockClient.withLock}. */
  withLock<T>(fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(options: AcquireOptions | undefined, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withLock(fn: LockCallback): void
  withLock(options: AcquireOptions | undefined, fn: LockCallback): void
}

/** A lock that several may hold at a time. */
export interface Semaphore extends Lock {
  /** How many. */
  readonly permits: number
}

/** A lock that many may hold to read, or one alone to write. */
export interface ReadWriteLock {
  /** Which lock. */
  readonly key: string
  /** Held together with all others who read. */
  readonly read: Lock
  /** Held alone: the same lock as that of {@link LockClient.acquire}. */
  readonly write: Lock
}

/**
 * One tenure of a lock. Inspecting or serializing it never shows the token.
 */
export interface Lease {
  /** Which lock. */
  readonly key: string
  /**
   * The value that proves ownership at the store; a secret. Empty when it is first asked for after the lease
   * has ended. Leases that are handed on within a process have the same one after each other.
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
  /**
   * How much longer it is held without another renewal; 0 when it is not held. Counted from before the request was
   * sent, and less a margin of 1 % and 2 ms for clocks that run differently: so it is less than the store tells.
   */
  readonly remaining: number
  /** Aborts with a {@link LockLostError} when the lease is lost; not when it is released. */
  readonly signal: AbortSignal
  /**
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released or detached
   */
  assertHeld(): void
  /**
   * Renews it now. Only needed with `autoRenew: false`, or for another ttl. Never makes it end earlier than it
   * would have: a shorter ttl takes effect with the renewals after this one.
   *
   * @param ttl its ttl from now on, 10 to 2 147 483 647. Default: the one it has.
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released or detached
   * @throws {StoreUnavailableError} the store could not be reached; the lease still lives until its deadline
   */
  renew(ttl?: number): Promise<void>
  /**
   * Renews it for the last time and ends it here without giving it back, so that somebody else can go on with it:
   * {@link LockClient.adopt}, in whatever process. The lock stays taken until it is adopted and released, or its time is over.
   *
   * **The ticket is a secret:** whoever has it can take the lease, and reads its token in it.
   *
   * @param ttl how long there is for adopting it, at least, 10 to 2 147 483 647: as with {@link renew}, it never ends earlier
   * than it would have. Default: its own ttl.
   * @returns the ticket: a string of up to a few kilobytes of letters, digits, `-` and `_`
   * @throws {LockLostError} it was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: it was released, or detached before
   * @throws {StoreUnavailableError} the store could not be reached; the lease is still held here
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  detach(ttl?: number): Promise<string>
  /**
   * Gives it back. A second call returns the same promise. A rejection that nobody handles does no harm.
   *
   * @returns `true` if it was given back, `false` if it was lost or detached before
   * @throws {StoreUnavailableError} the store could not be reached: the lease is not held any more, and its
   * release is tried again until it would have ended by its ttl
   */
  release(): Promise<boolean>
  /** {@link release}, for `await using`. Never rejects: a failure is the client's `'error'` event. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Leases of several locks, held as one. When one of them is lost, the others are released. Inspecting or serializing
 * it never shows a token.
 */
export interface MultiLease {
  /** Which locks: sorted, each once. */
  readonly keys: readonly string[]
  /** The {@link Lease.fence} of each key: each guards what its own lock protects. */
  readonly fences: Readonly<Record<string, number>>
  /** The leases, in the order of `keys`. */
  readonly leases: readonly Lease[]
  /** Whether all of them are held now; true to the clock, as {@link Lease.isHeld}. */
  readonly isHeld: boolean
  /** How much longer all of them are held without another renewal; 0 when they are not. */
  readonly remaining: number
  /** Aborts with a {@link LockLostError} as soon as one of them is lost; not when they are released. */
  readonly signal: AbortSignal
  /**
   * @throws {LockLostError} one of them was lost
   * @throws {LockError} `ERR_LOCK_RELEASED`: one of them was released or detached
   */
  assertHeld(): void
  /** Renews all of them now. Throws as {@link Lease.renew}; those that could be renewed are, then, too. */
  renew(ttl?: number): Promise<void>
  /**
   * Gives all of them back. A second call returns the same promise. A rejection that nobody handles does no harm.
   *
   * @returns `true` if all were still held
   * @throws {StoreUnavailableError} as with {@link Lease.release}, for one of them at least
   */
  release(): Promise<boolean>
  /** {@link release}, for `await using`. Never rejects: a failure is the client's `'error'` event. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * Who holds a lock and who waits for it, as {@link LockClient.inspect} tells. `holder`, `fence` and `remaining` are those of
 * the first lease, which is the only one unless the lock is shared.
 */
export interface LockInfo extends LeaseInfo {
  /** Whether it is held by one who lets others in: of a semaphore, or to read. */
  shared: boolean
  /** The leases, in the order of their fences; at least one. */
  leases: LeaseInfo[]
  /** Those who wait at the store, in their order. Those of one process who wait for the same may be one there. */
  waiters: WaiterInfo[]
  /** How many calls wait for it in this process. */
  waiting: number
}

/** What is known of one lease of a lock. */
export interface LeaseInfo {
  /** The holder's {@link LockClientOptions.name}; `null` if another library holds the key. */
  holder: string | null
  /**
   * The lease's fence; `null` if another library holds the key, or if it was just handed to a waiter that shares it or
   * could not be told. While a process hands it on among its own, the fence that the store gave; those of the later
   * holders are larger.
   */
  fence: number | null
  /** When the lease ends without renewal; `null` if it never does (another library's key without expiry). */
  remaining: number | null
}

/** What is known of one who waits for a lock. */
export interface WaiterInfo {
  /** Its {@link LockClientOptions.name}. */
  holder: string
  /** Whether it would let others in. */
  shared: boolean
  /** For how long its place has been in the queue; in a process that hands a lock on among its own, that of whoever came first. */
  age: number
}

/** Counters of one client since it was created. */
export interface LockStats {
  /** Leases held now. */
  held: number
  /** Acquires pending now. */
  waiting: number
  /** Leases granted. */
  acquired: number
  /** Of these, the ones for which somebody had to wait in the queue. */
  waited: number
  /** How long these took in all. */
  waitMs: number
  /** How long the slowest of these took. */
  longestWaitMs: number
  /** Leases handed on within this process, without asking the store. */
  localHandOffs: number
  /** Leases handed to a waiter of this client by the store. */
  remoteHandOffs: number
  /** Leases given back by their holder. */
  released: number
  /** Leases lost. */
  lost: number
  /** Times that the store was asked for a lock and somebody else held it; keeping a place in the queue does not count. */
  contended: number
  /** Acquires whose `wait` in the queue was over. */
  timeouts: number
  /** Acquires that were aborted. */
  aborted: number
  /** Successful renewals. */
  renewals: number
  /** Requests that the store answered with an error, or not at all. */
  errors: number
  /** The servers of the store; none for stores without a network, `memory:` and `sqlite:`. */
  stores: StoreHealth[]
}

/**
 * How one server is, as the circuit breaker before it sees it. A server that was out of reach several times in a row
 * (`unreachable`, or `timeout` for long enough) is not asked again until a probe has found it: meanwhile
 * {@link LockClient.tryAcquire} and the like fail at once, and calls that wait go on waiting. It is looked for at least twice a
 * second while somebody asks. Renewals are tried all the same. All clients of one store in a process share the breakers.
 */
export interface StoreHealth {
  /** Which server: its URL without a password. */
  store: string
  /** `closed`: it is asked. `open`: it is not. `half-open`: it is not, but a probe is under way. */
  state: 'closed' | 'open' | 'half-open'
  /** How many times in a row it had failed when the state changed; 0 when it is `closed`. */
  failures: number
  /** Since when it is there, or is not there (`open` and `half-open` are one): ms since 1970, by this host's clock. */
  since: number
  /** How it failed last; missing when it is `closed`. */
  reason?: StoreUnavailableReason
}

/** What {@link LockClient.diagnose} found. */
export interface Diagnosis {
  /** Whether there is nothing worse than `info` among the findings. */
  ok: boolean
  /** What may go wrong. */
  findings: Finding[]
  /** What was measured: one for each server, or for the place where the leases lie if that is no server. */
  stores: StoreFacts[]
}

/** One thing that was found. */
export interface Finding {
  /** Where: a URL without a password. */
  store: string
  /**
   * `info`: good to know. `warning`: locks may fail, or be had twice, under circumstances that the message names. `error`: locks
   * can't be had there.
   */
  level: 'info' | 'warning' | 'error'
  /**
   * Which it is, for programs: `eviction`, `persistence`, `clock`, `slow`, `notices`, `clients`, `replicas`, `old`, `unchecked`,
   * `process-only`, `host-only`, `network-filesystem`, or a {@link StoreUnavailableReason}. There may be others in later versions.
   */
  code: string
  /** For people: what it is, what it may lead to, and what to do about it. */
  message: string
}

/** What was measured of one server; `null` where it is none or would not tell. */
export interface StoreFacts {
  /** Its URL without a password. */
  store: string
  /** The server's version. */
  version: string | null
  /** How long a question and its answer take: the middle of five. */
  roundTrip: number | null
  /** By how much its clock is ahead of this host's, to within half a round trip. */
  clockOffset: number | null
}

/** What {@link createLockWorker} takes. */
export interface LockWorkerOptions {
  /** The client to use; it is left open. Either this or `store`. */
  client?: LockClient | undefined
  /** Where the lock lives, for a client of the worker's own. Default: as for {@link createLockClient}. */
  store?: string | readonly string[] | undefined
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
   * or detach it ends the tenure likewise, as `released`.
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
  /**
   * Ends the work, releases the lease, and resolves when that is done. Never rejects. It waits for `startWork` to settle,
   * so `startWork` must not wait for it.
   */
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
  /** The lease was given back or detached, and its work has ended. */
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
 * {@link Lease.release} or {@link Lease.detach} (or left an `await using` of the lease), or why the lease was lost.
 */
export type StopReason = 'stopped' | 'failed' | 'released' | LossReason

/**
 * Why a lease was lost. `expired`: not renewed in time, or `maxHold` old. `taken`: somebody else holds it now. `missing`:
 * the store knows nothing of it. `stalled`: this thread was blocked for longer than `maxStall`. `closed`: the client was.
 */
export type LossReason = 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'

/**
 * What is wrong with a store. These may pass by themselves: `unreachable` (no connection), `timeout` (no answer in
 * `storeTimeout`, or of too few replicas), `loading` (starting, or busy), `readonly` (a replica), `full` (memory or disk). These do not:
 * `denied` (user, password, rights, client certificate), `unsupported` (nothing that can be used, or TLS on one side only),
 * `wrongtype` (the key is something else), `internal` (a bug), `untrusted` (the server's certificate: of an unknown issuer,
 * expired, for another name).
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
  | 'untrusted'

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

/** Code `ERR_LOCK_TIMEOUT`: somebody else held the lock for all of `wait`, or at each try; or work did not end in `stopTimeout`. */
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

/** Code `ERR_LOCK_QUORUM`: too few nodes of a quorum could be reached, or used, to grant or renew a lease. */
export class QuorumError extends LockError {
  constructor(votes: readonly Vote[], message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_QUORUM'
  /** What each node said, in the order in which they were named. */
  readonly votes: readonly Vote[]
}

/** What one node of a quorum said. */
export interface Vote {
  /** Its URL, without the password. */
  readonly store: string
  /**
   * `granted`: yes. `busy`: somebody else has it there. `missing`: it knows nothing of the lease. `slow`: nothing yet, when the others
   * had decided. Else why it failed.
   */
  readonly vote: 'granted' | 'busy' | 'missing' | 'slow' | StoreUnavailableReason
  /** What went wrong there, for people. */
  readonly message?: string
}

/** Code `ERR_LOCK_CLOSED`: the client was closed. */
export class LockClosedError extends LockError {
  constructor(message: string, options?: LockErrorOptions)
  readonly code: 'ERR_LOCK_CLOSED'
}
