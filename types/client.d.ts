// A client.

import type { LockClientEvents } from './client-events'
import type { CloseOptions } from './client-options'
import type { Emitter } from './emitter'
import type { Diagnosis, ListOptions, LockInfo, LockList, LockStats } from './info'
import type { Lease, MultiLease } from './lease'
import type { OnceOptions, OnceOutcome, Schedule, ScheduledJob, ScheduleOptions } from './once'
import type {
  AcquireOptions,
  AdoptOptions,
  HeldOf,
  Keys,
  LockCallback,
  ReadWriteLock,
  Semaphore,
  TryAcquireOptions,
} from './options'

/** Acquires locks at one store. */
export interface LockClient extends Emitter<LockClientEvents> {
  /**
   * Acquires the lock. If another client holds it, the call waits: waiters are served in arrival
   * order across all processes (see {@link LockClientOptions.handOffs}). The client renews the
   * lease until it is released, detached, lost, or `maxHold` old. A pending call keeps the process
   * alive; a held lease does not.
   *
   * If you pass several keys, the call acquires all of their locks or none. It acquires one after
   * the other, each once, in the order of their UTF-16 units. So two callers that want some of the
   * same keys never wait for each other for ever. `wait` is for all of them together. If one lock
   * can't be acquired, or a lease is lost meanwhile, the client releases the others before the call
   * rejects. If the call is aborted, it rejects at once, and the client releases them at the same
   * time.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL. Or an array of at
   * least one: which locks. A key that ends with `@once:` and an id belongs to {@link once} and
   * {@link schedule}: this method refuses it (`ERR_INVALID_ARG_VALUE`). If a part of the key is
   * `undefined`, `null`, `NaN` or `[object Object]`, a value is probably missing, and unrelated
   * calls share the lock. For the first key with each of these texts, the thread emits a process
   * warning with the code `LEASEHOLD_SUSPICIOUS_KEY`.
   * @returns a promise of the lease: `await` it, because a promise has no `release()` or `signal`
   * @throws {LockTimeoutError} the lock was held for all of `wait`, or at each try: see
   * {@link AcquireOptions.retry}. The error says who held it, which may take up to 250 ms more
   * @throws {StoreUnavailableError | QuorumError} the store could not be reached or used. The call
   * retries faults that may pass until `wait` ends, unless {@link AcquireOptions.failFast} is set
   * @throws {LockAbortedError} `signal` was aborted
   * @throws {LockLostError} the lease ended before the caller got it: this thread was blocked until
   * the lease had ended, or the lease was one of several and was lost while the call waited for the
   * others
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const lease = await locks.acquire('report', { wait: 500, signal: request.signal })
   * try { await write(lease) } finally { await lease.release() }
   */
  acquire<K extends Keys>(key: K, options?: AcquireOptions): Promise<HeldOf<K>>

  /**
   * Acquires the lock like {@link acquire}, but never waits: resolves with `null` if another client
   * holds the lock or waits for it. The call does not retry faults. Of several keys, it acquires
   * all or none, and resolves with `null` when the client has released the others again.
   */
  tryAcquire<K extends Keys>(key: K, options?: TryAcquireOptions): Promise<HeldOf<K> | null>

  /**
   * Acquires the lock, runs `fn` with the lease, and releases it. If `fn` throws, the call rejects
   * with that error, even if the release fails. If `fn` succeeds and the release fails, only the
   * `'error'` event reports it: the lease then ends by its ttl. The lock is not reentrant: a caller
   * that holds the lock and asks for it again waits like any other caller. `fn` may
   * {@link Lease.detach} or release the lease itself.
   *
   * A function that declares three parameters or more is a {@link LockCallback}: then the call
   * returns nothing, the function gets an error or a lease, and calls `done` to release the lease.
   * Until then, the process stays alive.
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
  /** Does the same in the style of callbacks. */
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
   * Returns a lock that up to `permits` leases may hold at a time, across all processes. Each call
   * counts the holders against its own `permits`, so use the same number everywhere. While you
   * change the number, calls with the larger number let in more holders than the smaller number
   * allows. They wait behind a call with the smaller number that finds the lock full. The semaphore
   * is the lock of that key: while {@link acquire} holds it, no other call does, and no waiter in
   * the queue overtakes another. This method sends nothing to the store.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @param permits 1 to 1 000 000.
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE` (also if the store is a
   * quorum, which has no semaphores)
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   * @example
   * const uploads = locks.semaphore('uploads', 5)
   * await uploads.withLock({ wait: 60_000 }, () => upload(file))
   */
  semaphore(key: string, permits: number): Semaphore

  /**
   * Returns a lock that many readers or one writer may hold. First come, first served: a reader
   * that comes after a waiting writer waits behind it, so writers do not starve. This method sends
   * nothing to the store.
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
   * Calls `listener` at the next event, as every event emitter does. With an id, this method runs a
   * task once instead: see the other signature.
   */
  once<K extends keyof LockClientEvents>(event: K, listener: (...told: LockClientEvents[K]) => void): this
  /**
   * Runs `fn` once for this `id` across all processes. The first caller runs it. While it runs, and
   * for `keep` after that, all other calls resolve with `ran: false` at once. No call waits for the
   * `fn` of another one.
   *
   * The store remembers the id by a lease on the lock `KEY@once:ID` that the client does not
   * release. So `fn` runs again if the store has lost its data, if the process dies in the middle
   * and another call comes after the lease has ended, and if a call comes after `keep`. Storage
   * that {@link Lease.fence | checks fences} refuses late writes of the earlier run.
   *
   * If the store fails, the call tries again until `wait` ends; with {@link OnceOptions.failFast},
   * only while the store can grant leases. Then it rejects, and `fn` has not run.
   *
   * @param key What is done: 1 to about 1000 bytes of well-formed Unicode without NUL.
   * @param id Which one, with the same rules: an order, a day. Key and id together may have about
   * 1000 bytes.
   * @throws what `fn` throws: by default, another call may then try; see
   * {@link OnceOptions.onFailure}
   * @throws {StoreUnavailableError | QuorumError | LockTimeoutError} the store did not say whether
   * the id was done; `fn` has not run
   * @throws {LockAbortedError | LockClosedError} `signal` was aborted, or the client closed; `fn`
   * has not run
   * @throws {TypeError | RangeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`,
   * `ERR_OUT_OF_RANGE`
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
   * Runs `fn` at the ticks of a cron pattern. Of all processes with this schedule, the one that
   * asks first runs the tick. Clocks may differ by less than `keep`. The schedule begins at once,
   * and keeps the process alive until you stop it or close the client.
   *
   * If `fn` still runs for an earlier tick, in any process, a new tick waits for it. If the store
   * fails, the schedule asks again. Both go on until the next tick, for `catchUp` at most. Then the
   * tick is skipped or missed: nothing runs without the store's answer. `docs/cron.md` says what is
   * promised, and what is not.
   *
   * @param name The job, and the lock that is held while it runs: like a key, but up to 1000 bytes.
   * Schedules with the same name are the same job in all processes. A client may have one of them
   * at a time, until you stop it.
   * @param cron Five fields, six (with seconds first) or seven (with years last), or a name such as
   * `@daily`. Use the same pattern in all processes. If two clients of a process have different
   * patterns for one name, the process prints a warning with the code
   * `LEASEHOLD_SCHEDULE_PATTERNS`.
   * @throws {LockClosedError} the client was closed
   * @throws {TypeError | RangeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE` (also if there
   * is a schedule with that name), `ERR_OUT_OF_RANGE`
   * @example
   * const nightly = locks.schedule('nightly-mail', '0 3 * * *', (lease, tick) => sendMails(tick, lease.fence))
   * nightly.on('error', (error, tick) => console.error(tick, error))
   * nightly.on('missed', (tick, error) => console.error(tick, error))
   * process.once('SIGTERM', () => nightly.stop())
   */
  schedule(name: string, cron: string, fn: ScheduledJob, options?: ScheduleOptions): Schedule

  /**
   * Takes over a lease that this process or another one has detached: the same lock, the same
   * fence. If several clients try, exactly one gets it. The client needs the same store and
   * `prefix` as the client that detached it.
   *
   * The client takes the fence, the mode and the ttl of the lease from the store, so a changed
   * ticket does not change them. From then on, the `ttl` of the new holder counts, and not the time
   * of the ticket. Over a quorum, the servers keep the lease at least for the time of the ticket:
   * if this process dies, the lock is free when both are over.
   *
   * @param ticket The ticket that {@link Lease.detach} resolved with.
   * @throws {LockLostError} another client adopted the lease, or no client did before it ended.
   * Over a quorum, that client may still give the lease back, if its `signal` is aborted in that
   * moment: the ticket can then be adopted until it ends.
   * @throws {StoreUnavailableError | QuorumError} the store could not be used, or not be reached
   * for all of `ttl`; a lease that may have been adopted is released, or over a quorum goes back to
   * the ticket
   * @throws {LockAbortedError} `signal` was aborted; a lease that was adopted already is released.
   * Over a quorum, an adoption that has not ended yet gives the lease back to the ticket instead.
   * @throws {LockClosedError} the client was closed; if the lease was adopted already, it is
   * released, and the ticket is used up
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`: the text is not
   * a ticket, or not a complete one
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
   * @param ticket The ticket that {@link Lease.detach} resolved with.
   * @returns what `fn` returned
   * @throws what `fn` throws, and what {@link adopt} throws; in the latter case `fn` has not run
   * @throws {LockLostError} the lease was lost while `fn` ran; `fn` has run to its end
   * @example
   * process.on('message', ({ ticket }) => locks.withAdopted(ticket, (lease) => work(lease)))
   */
  withAdopted<T>(ticket: string, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  withAdopted<T>(ticket: string, options: AdoptOptions, fn: (lease: Lease) => T | PromiseLike<T>): Promise<T>

  /**
   * Returns who holds a lock, and who waits for it. Resolves with `null` if the lock is free.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @throws {StoreUnavailableError | QuorumError}
   * @throws {LockClosedError}
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  inspect(key: string): Promise<LockInfo | null>

  /**
   * Returns the held locks below the client's `prefix`, in the order of their keys. On Redis, the
   * call looks at all keys of the database, a thousand at a time (`SCAN`), for up to half of {@link
   * LockClientOptions.storeTimeout}. So use it for people and monitoring, not for frequent calls.
   * Over a quorum, it returns the locks that most nodes have. It returns the ids that {@link once}
   * and {@link schedule} remember only for a pattern that names them, such as `*@once:*`.
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
   * Ends every lease of a lock, and hands the lock to the next waiter. Operators use it if a holder
   * hangs: **it breaks what a lock promises.** The client does not ask the holder. The
   * holder learns of the loss at its next renewal, up to a third of its ttl later, by a {@link
   * LockLostError} of reason `missing` or `taken`, and may work at the same time as the next holder
   * until then. Only storage that checks fences refuses its writes at once. The client does not
   * repeat the call: after an error, the lock may be broken or not. Over a quorum, the leases end
   * once most servers have answered, and these servers do not take them back for 2 minutes.
   *
   * @param key Which lock: 1 to 1024 bytes of well-formed Unicode without NUL.
   * @returns whether the lock was held. If it was not, the call has changed nothing. Check the key,
   * which is without the client's `prefix`, and the store: {@link list} shows all held locks.
   * @throws {StoreUnavailableError | QuorumError} the reason is `wrongtype` if the key has other
   * data, which the call keeps
   * @throws {LockClosedError}
   * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
   * @throws {RangeError} `ERR_OUT_OF_RANGE`
   */
  forceRelease(key: string): Promise<boolean>

  /** Returns what this client has done so far, and the state of its servers. */
  stats(): LockStats

  /**
   * Checks the store, and says in plain words what may go wrong with locks there, for leases of the
   * client's `ttl`. A store that can't be reached or used is a finding, not an error. The call
   * reads settings and asks for the time a few times. On Redis, it acquires and releases the lock
   * `leasehold-doctor` to find out whether this user may lock keys with the client's prefix. It
   * changes no other lock.
   *
   * @throws {LockClosedError}
   * @example
   * for (const { level, store, message } of (await locks.diagnose()).findings) console.log(level, store, message)
   */
  diagnose(): Promise<Diagnosis>

  /**
   * Resolves when the client has reached the store. You need not call it. It does not check the
   * rights of the user: {@link LockClient.diagnose} does.
   *
   * @throws {StoreUnavailableError | QuorumError}
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
   * resolves at most 500 ms after that. A second call returns the same promise. If the `drain` of
   * the second call ends sooner, it shortens that of the first call.
   *
   * @throws {TypeError} only for a bad option; then the client stays open
   * @throws {RangeError} likewise
   */
  close(options?: CloseOptions): Promise<void>

  /** Calls {@link close} with the client's own `drain`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
