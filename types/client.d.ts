// A client, its options and its events.

import type {
  AcquireOptions,
  AdoptOptions,
  HeldOf,
  Keys,
  LockCallback,
  ReadWriteLock,
  Semaphore,
  TryAcquireOptions,
} from './asking'
import type { Emitter } from './emitter'
import type { LockLostError } from './errors'
import type { Lease, MultiLease } from './lease'
import type { OnceOptions, OnceOutcome, Schedule, ScheduledJob, ScheduleOptions } from './once'
import type { TlsOptions } from './tls'
import type { Diagnosis, ListOptions, LockInfo, LockList, LockStats, StoreHealth } from './told'
import type { Milliseconds } from './units'

/** Acquires locks at one store. */
export interface LockClient extends Emitter<LockClientEvents> {
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
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL. Or an array of at least one: which locks.
   * @throws {LockTimeoutError} the lock was held for all of `wait`, or at each try: see
   * {@link AcquireOptions.retry}. The error says who held it; to find out may take up to 250 ms more
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached or used. Passing
   * faults are retried until `wait` ends, unless {@link AcquireOptions.failFast} is set
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
  acquire<K extends Keys>(key: K, options?: AcquireOptions): Promise<HeldOf<K>>

  /**
   * Like {@link acquire}, but never waits: `null` if somebody else holds the lock, or waits for it; a fault is not
   * retried. Of several keys all or none: `null` when the others are released again.
   */
  tryAcquire<K extends Keys>(key: K, options?: TryAcquireOptions): Promise<HeldOf<K> | null>

  /**
   * Acquires the lock, runs `fn` with the lease, and releases it. What `fn` throws is what comes out, whatever
   * becomes of the release. A release that fails after `fn` succeeded is told by the `'error'` event only: the
   * lease then ends by its ttl. Not reentrant: who holds the lock waits for it like anybody else. `fn` may
   * {@link Lease.detach} or release the lease itself.
   *
   * A function that declares three parameters or more is a {@link LockCallback}: then nothing is returned, the function
   * gets an error or a lease, and the lease is released when it says so. Until then the process is kept alive.
   *
   * TypeScript infers `T` and `K`. A call may name `T` alone: `withLock<number>(['a', 'b'], fn)`.
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
  withLock<T, K extends Keys = string>(key: K, fn: (lease: HeldOf<K>) => T | PromiseLike<T>): Promise<T>
  withLock<T, K extends Keys = string>(
    key: K,
    options: AcquireOptions | undefined,
    fn: (lease: HeldOf<K>) => T | PromiseLike<T>,
  ): Promise<T>
  /** Does the same for several keys, in a call that names `T`. */
  withLock<T>(keys: readonly string[], fn: (leases: MultiLease) => T | PromiseLike<T>): Promise<T>
  withLock<T>(
    keys: readonly string[],
    options: AcquireOptions | undefined,
    fn: (leases: MultiLease) => T | PromiseLike<T>,
  ): Promise<T>
  /** The same in the style of callbacks. */
  withLock<K extends Keys>(key: K, fn: LockCallback<HeldOf<K>>): void
  withLock<K extends Keys>(key: K, options: AcquireOptions | undefined, fn: LockCallback<HeldOf<K>>): void
  // If none of four or more overloads fits, the compiler reports what is wrong with the last one.
  // So this one has to be last: then the compiler says which option is wrong, and not that the key
  // is no array.
  /** Does the same for one key or several, in a call that names `T`. */
  withLock<T, K extends Keys = Keys>(key: K, fn: (lease: HeldOf<K>) => T | PromiseLike<T>): Promise<T>
  withLock<T, K extends Keys = Keys>(
    key: K,
    options: AcquireOptions | undefined,
    fn: (lease: HeldOf<K>) => T | PromiseLike<T>,
  ): Promise<T>

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

  /** What every event emitter has. With an id between the two it is another thing: */
  once<K extends keyof LockClientEvents>(event: K, listener: (...told: LockClientEvents[K]) => void): this
  /**
   * Runs `fn` once for this `id`, whoever asks, in whatever process: the first one runs it, and while it does and for `keep` after
   * that, all others are told that they need not. Nobody waits for somebody else's `fn`.
   *
   * The id is remembered by a lease on the lock `KEY@once:ID` that is not released. So `fn` runs again when the store has lost
   * its data, when the process dies in the middle and somebody asks once the lease has ended, and when somebody asks after `keep`.
   * Storage that {@link Lease.fence | checks fences} refuses what comes late of the one before.
   *
   * If the store fails, the call tries again until `wait` ends; with {@link OnceOptions.failFast},
   * only while the store can grant leases. Then it rejects, and `fn` has not run.
   *
   * @param key What is done: 1 to about 1000 bytes of well-formed Unicode without NUL.
   * @param id Which one, with the same rules: an order, a day. The two together may have some 1000 bytes.
   * @throws what `fn` throws: by default, another may then try; see {@link OnceOptions.onFailure}
   * @throws {StoreUnavailableError | QuorumError | LockTimeoutError} nobody could tell whether it was done; `fn` has not run
   * @throws {LockAbortedError | LockClosedError} `signal` was aborted, or the client closed; `fn` has not run
   * @throws {TypeError | RangeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`, `ERR_OUT_OF_RANGE`
   * @example
   * const { ran } = await locks.once('welcome-mail', user.id, () => sendMail(user))
   */
  once<T>(
    key: string,
    id: string,
    fn: (lease: Lease) => T | PromiseLike<T>,
    options?: OnceOptions,
  ): Promise<OnceOutcome<T>>

  /**
   * Runs `fn` at the ticks of a cron pattern, each in one process of all those that have this schedule, whichever asks first.
   * Clocks may differ, by less than `keep`. It begins at once, and keeps the process alive until it is stopped or the
   * client is closed.
   *
   * A tick that comes while `fn` still runs for an earlier one, wherever, waits for that, and a store that fails is asked again:
   * until the next tick, at most for `catchUp`. Then the tick is skipped or missed; nothing runs without the store's answer.
   * `docs/cron.md` tells what is promised, and what is not.
   *
   * @param name What is done, and the lock that is held meanwhile: as a key, but of 1000 bytes. Schedules of one name
   * are the same job, in whatever process: this client may have one of them at a time, until it is stopped.
   * @param cron Five fields, six (with seconds first) or seven (with years last), or `@daily` and the like; the same everywhere.
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError | RangeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE` (also when there is one of that name),
   * `ERR_OUT_OF_RANGE`
   * @example
   * const nightly = locks.schedule('nightly-mail', '0 3 * * *', (lease, tick) => sendMails(tick, lease.fence))
   * nightly.on('error', (error, tick) => console.error(tick, error))
   * nightly.on('missed', (tick, error) => console.error(tick, error))
   * process.once('SIGTERM', () => nightly.stop())
   */
  schedule(name: string, cron: string, fn: ScheduledJob, options?: ScheduleOptions): Schedule

  /**
   * Goes on with a lease that was detached, here or in another process: the same lock, the same fence. Of several who
   * try, exactly one gets it. The client needs the store and the `prefix` of the one that detached it.
   *
   * The client takes the fence, the mode and the ttl of the lease from the store, so a changed
   * ticket does not change them. From then on, the heir's `ttl` counts, and no longer the time of
   * the ticket. Over a quorum, the servers keep the lease at least for the time of the ticket: if
   * this process dies, the lock is free when both are over.
   *
   * @param ticket What {@link Lease.detach} resolved with.
   * @throws {LockLostError} somebody else adopted it, or nobody did before it ended
   * @throws {StoreUnavailableError} the store could not be used, or not be reached for all of
   * `ttl`; a lease that may have been adopted is released, or over a quorum goes back to the ticket
   * @throws {LockAbortedError} `signal` was aborted; a lease that was adopted already is released.
   * Over a quorum, an adoption that has not ended yet gives the lease back to the ticket instead.
   * @throws {LockClosedError} the client was closed; if the lease was adopted already, it is
   * released, and the ticket is used up
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
   * Adopts a lease as {@link adopt} does, runs `fn` under it, and then releases it. `fn` is a
   * section, as with {@link withLock}: if the client closes, the lease is held until `fn` ends or
   * the client's `drain` is over.
   *
   * The client takes the fence, the mode and the ttl of the lease from the store, so a changed
   * ticket does not change them.
   *
   * @param ticket What {@link Lease.detach} resolved with.
   * @returns what `fn` returned
   * @throws what `fn` throws, and what {@link adopt} throws; in the latter case `fn` has not run
   * @throws {LockLostError} the lease was lost while `fn` ran; `fn` has run to its end
   * @example
   * process.on('message', ({ ticket }) => locks.withAdopted(ticket, (lease) => work(lease)))
   */
  withAdopted<T>(ticket: string, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withAdopted<T>(ticket: string, options: AdoptOptions, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>

  /**
   * Tells who holds a lock, and who waits for it; `null` if nobody holds it.
   *
   * @throws {StoreUnavailableError}
   * @throws {LockClosedError}
   */
  inspect(key: string): Promise<LockInfo | null>

  /**
   * Tells which locks are held below the client's `prefix`, in the order of their keys. On Redis it looks at all keys of the
   * database, a thousand at a time (`SCAN`), for up to half of {@link LockClientOptions.storeTimeout}: it is for people and
   * monitoring, not for what is done often. Of a quorum, what most nodes have. The ids that {@link once} and {@link schedule} remember
   * are told only for a pattern that says so, as `*@once:*`.
   *
   * @throws {StoreUnavailableError | QuorumError}
   * @throws {LockClosedError}
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const { locks: held, complete } = await locks.list({ pattern: 'invoice:*' })
   * for (const { key, holder, waiters } of held) console.log(key, holder, waiters.length)
   */
  list(options?: ListOptions): Promise<LockList>

  /**
   * Ends every lease of a lock, and hands the lock to the next waiter. It is for operators, when a
   * holder hangs: **it breaks what a lock promises.** The holder is not asked. It finds out at its
   * next renewal, up to a third of its ttl later, by a {@link LockLostError} of reason `missing` or
   * `taken`, and may work at the same time as the next holder until then. Only storage that checks
   * fences refuses its writes at once. The client does not repeat the call: after an error, the
   * lock may be broken or not. Over a quorum, the leases end once most servers have answered, and
   * these servers do not take them back for 2 minutes.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @returns whether anybody held it
   * @throws {StoreUnavailableError | QuorumError}
   * @throws {LockClosedError}
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  forceRelease(key: string): Promise<boolean>

  /** What this client did so far, and how its servers are. */
  stats(): LockStats

  /**
   * Looks at the store and tells in plain words what may go wrong with locks there, for leases of the client's `ttl`. A store
   * that can't be reached or used is a finding, not an error. The call reads settings and asks for
   * the time a few times. On Redis, it acquires and releases the lock `leasehold-doctor` to find
   * out whether this user may lock keys with the client's prefix. It changes no other lock.
   *
   * @throws {LockClosedError}
   * @example
   * for (const { level, store, message } of (await locks.diagnose()).findings) console.log(level, store, message)
   */
  diagnose(): Promise<Diagnosis>

  /**
   * Resolves when the client has reached the store. Calling it is not required. It does not check
   * the rights of the user: {@link LockClient.diagnose} does.
   *
   * @throws {StoreUnavailableError}
   * @throws {LockClosedError}
   */
  ready(): Promise<void>

  /**
   * Ends the client. Calls that wait for a lock, and later ones, reject with
   * {@link LockClosedError}. The client releases leases from a bare {@link acquire},
   * {@link tryAcquire} or {@link adopt}; their holder gets a {@link LockLostError} of reason
   * `closed`.
   *
   * **Sections keep their locks until they end**: {@link withLock} in both forms, {@link
   * withAdopted}, a request under `lockRequest` or `withRequestLock`, {@link once}, the job of a
   * {@link schedule}, and the work of a worker, which the client stops. If a section still runs
   * after `drain` ms, its lease's `signal` aborts with reason `closed`, and `isHeld` turns false.
   * The client stops renewing that lease. The end of the section releases it, or its ttl ends it.
   *
   * Resolves when all leases are released or `drain` is over. If the store can't be reached, it
   * resolves at most 500 ms after that. A second call returns the same promise. If its `drain` ends
   * sooner, it shortens the first one's.
   *
   * @throws {TypeError} only for a bad option; then the client stays open
   * @throws {RangeError} likewise
   */
  close(options?: CloseOptions): Promise<void>

  /** {@link close} with the client's own `drain`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** Options of {@link LockClient.close}. */
export interface CloseOptions {
  /**
   * Limits how long sections may take to end, in ms: 0 to 2 147 483 647, or `Infinity`. Default:
   * the client's `drain`.
   */
  drain?: Milliseconds | undefined
}

/** The events of a {@link LockClient}. */
export interface LockClientEvents {
  /**
   * Emitted when a lease was lost: it ended although its holder had not released it. Not emitted
   * for a lease that no caller of acquire received.
   */
  lost: [lease: Lease, error: LockLostError]
  /**
   * Emitted in these cases:
   *
   * - A release that no call waits for failed: the error is a {@link LockError}.
   * - A callback called `done(error)` without a callback that takes the error.
   * - A job failed, and its schedule has no `'error'` listener.
   * - The store failed, and a schedule without a `'missed'` listener missed a tick.
   *
   * Without a listener, the error is not thrown. The first error of the client is a process warning
   * with the code `LEASEHOLD_UNHEARD_ERROR`, which Node prints. The warning names the store without
   * its password, and its `cause` is the error.
   */
  error: [error: NodeJS.ErrnoException]
  /**
   * A server of the store is gone, as its circuit breaker sees it (`state` is `open`), is there and refuses to be used
   * (`refusing`: a wrong password, no memory left, a replica), or back (`closed`): see {@link StoreHealth}. In a quorum that has
   * enough others nothing else tells. Told once each; of probes that fail meanwhile only {@link LockClient.stats} knows. Told at once of a server that is already
   * known to be gone, or to refuse, when the client is opened.
   */
  breaker: [health: StoreHealth]
}

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
   * stay away for the longest `ttl`; see docs/choosing-a-store.md. Commas or blanks between URLs in one string are refused.
   *
   * A client of ioredis or node-redis is refused (`ERR_INVALID_ARG_TYPE`). The error has the URL to
   * give instead.
   */
  store?: string | readonly string[] | undefined
  /** Redis user name, if it is not in the URL. Another than there is refused, as `password`. */
  username?: string | undefined
  /** Redis password, if it is not in the URL. Another than there is refused. */
  password?: string | undefined
  /**
   * The certificates for a store that is reached over TLS (`rediss://`, `rediss-sentinel://`): those
   * to trust, and those to present.
   */
  tls?: TlsOptions | undefined
  /**
   * The user name at the sentinels, if they want one. Only for `redis-sentinel://`, as is
   * `sentinelPassword`.
   */
  sentinelUsername?: string | undefined
  /** Password at the sentinels, if they want one. */
  sentinelPassword?: string | undefined
  /**
   * How many replicas of a Redis master must have a lease before it is granted, and a renewal
   * before it counts: 0 to 100. Default 0. A failover then loses a lease only if a replica without
   * the lease is promoted. Each grant takes longer by the replicas' round trip. While too few
   * replicas answer, no lease is granted, and held leases end (`StoreUnavailableError`, reason
   * `timeout`). So run one replica more than this number: a promoted replica does not count as a
   * replica any more. A request waits for replicas for up to half of its time-out.
   */
  minReplicas?: number | undefined
  /**
   * The text that the client puts before every key at the store. Up to 255 bytes of UTF-8, default
   * `lock:`. If the prefix is empty or begins with `{`, methods refuse a key that names data of
   * another lock in Redis, such as `{LOCK}:fence` (`ERR_INVALID_ARG_VALUE`).
   */
  prefix?: string | undefined
  /**
   * Names the holder in the result of {@link LockClient.inspect} for a lock that this client holds:
   * 1 to 255 bytes, without U+001F. Default `HOSTNAME:PID`.
   */
  name?: string | undefined
  /** How long a lease lives without renewal: 10 to 2 147 483 647. Default 10 000. */
  ttl?: Milliseconds | undefined
  /**
   * How long {@link LockClient.acquire} waits, in ms: 0 to 2 147 483 647, or `Infinity`. Default 10
   * 000.
   */
  wait?: Milliseconds | undefined
  /**
   * Whether calls that would wait for a lock reject while the store can't grant leases: see
   * {@link AcquireOptions.failFast}, which overrides it for a call. {@link LockClient.tryAcquire}
   * always fails fast. Workers, schedules and {@link LockClient.adopt} never do. Default `false`.
   */
  failFast?: boolean | undefined
  /**
   * Renewal goes on while the JavaScript thread is blocked, but no longer than this, so that a hung process
   * does not hold for ever: 100 to 2 147 483 647, or `Infinity`. Default 60 000.
   */
  maxStall?: Milliseconds | undefined
  /** How long one call to the store may take: 10 to 60 000. Default 1000. */
  storeTimeout?: Milliseconds | undefined
  /**
   * How many times in a row a lock may be handed on within this process, without asking the store: so often, and for up
   * to 10 ms, before it asks whether others wait; and so often, and for up to 10 ms, in a turn while they do. 0 is never:
   * then everybody is served strictly in the order of arrival, at one round trip each. 0 to 1000, default 32.
   */
  handOffs?: number | undefined
  /**
   * Limits how long {@link LockClient.close} waits for sections to end, in ms: 0 to 2 147 483 647,
   * or `Infinity`. Default 8000: `docker stop` kills after 10 s, so work that outlives the drain
   * has 2 s left to stop when its signal aborts.
   */
  drain?: Milliseconds | undefined
  /**
   * Lists signals on which the client closes, as by {@link LockClient.close}: it waits for sections
   * for at most `drain` ms. If no other code listens to the signal, the process then ends by it.
   * Only the first process of a container (pid 1) exits with code 128 plus the signal's number
   * instead. A second signal ends the process at once, unless it arrives within 500 ms: some parent
   * processes forward a signal that the process has got already. Main thread only. Default none.
   */
  releaseOnSignal?: NodeJS.Signals[] | undefined
}
