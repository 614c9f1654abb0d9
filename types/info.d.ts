// What a client reports: about a lock, about itself, about its store.

import type { StoreUnavailableReason } from './errors'
import type { Milliseconds } from './units'

/**
 * Who holds a lock and who waits for it: the result of {@link LockClient.inspect}. `holder`,
 * `fence` and `remaining` are those of the first lease, which is the only one unless the lock is
 * shared. `servers` is that of the lease with the smallest `held`.
 */
export interface LockInfo extends LeaseInfo {
  /** Whether the holder shares the lock: it holds a semaphore, or a lock to read. */
  shared: boolean
  /** The leases, in the order of their fences; at least one. */
  leases: LeaseInfo[]
  /**
   * The waiters at the store, in their order. Calls of one process that wait for the same lock may
   * be one waiter there.
   */
  waiters: WaiterInfo[]
  /** How many calls of this process wait for the lock. */
  waiting: number
}

/** The options of {@link LockClient.list}. */
export interface ListOptions {
  /**
   * The pattern of the keys: `*` stands for any characters, `?` for one, and `\` takes the next one
   * literally. Up to 1024 bytes. Default `*`.
   */
  pattern?: string | undefined
  /**
   * The largest number of locks to return: 1 to 10 000. If there are more, the store decides which
   * ones. Default 1000.
   */
  limit?: number | undefined
}

/** The result of {@link LockClient.list}. */
export interface LockList {
  /** The held locks, in the order of their keys. */
  locks: ListedLock[]
  /**
   * Whether these are all held locks. `false` if there are more than `limit`, too many keys to look
   * at in time, or more than the client keeps: 4 MB of keys, or locks that take 48 MB of memory
   * (about 180 000 waiters).
   */
  complete: boolean
}

/** One held lock of a {@link LockList}. */
export interface ListedLock extends LockInfo {
  /** The key of the lock, without the client's prefix. */
  key: string
}

/** One lease of a lock. */
export interface LeaseInfo {
  /** The holder's {@link LockClientOptions.name}; `null` if another library holds the key. */
  holder: string | null
  /**
   * The lease's fence; `null` if another library holds the key, or if the lease was just handed to
   * a waiter that shares the lock or could not be notified. While a process passes the lease
   * between its own waiters, this is the fence that the store gave; the fences of the later holders
   * are larger.
   */
  fence: number | null
  /**
   * How much longer the lease lives without renewal, in ms; `null` if it never ends (another
   * library's key without expiry).
   */
  remaining: Milliseconds | null
  /**
   * How many servers of a quorum have the lease. If fewer than a majority have it, the lease is
   * lost. A server that was away gets the lease back with the next renewals. Missing for other
   * stores, and if another library holds the key.
   */
  servers?: {
    /** How many servers have the lease, of those that answered in time. */
    held: number
    /** How many servers the quorum has. */
    total: number
    /**
     * How many servers did not answer in time: within `storeTimeout`, and within 1 s after most of
     * the servers had answered. Missing if all servers answered.
     */
    unheard?: number
  }
  /**
   * The trace and the span of the call for the lease, as a `traceparent` of the W3C:
   * `00-TRACE-SPAN-FLAGS`. Missing unless the holder's client is instrumented with `leasehold/otel`
   * and records that span. While a process passes the lease between its own waiters, this is the
   * span of the first call when the process last asked the store.
   */
  trace?: string
}

/** One waiter for a lock. */
export interface WaiterInfo {
  /** The {@link LockClientOptions.name} of its client. */
  holder: string
  /** Whether the waiter would share the lock. */
  shared: boolean
  /**
   * How long its place has been in the queue, in ms. If a process passes a lock between its own
   * waiters, the place is that of the first of them.
   */
  age: Milliseconds
  /** The same as {@link LeaseInfo.trace}. */
  trace?: string
}

/** Counters of one client since it was created. */
export interface LockStats {
  /** Leases held now. */
  held: number
  /** Acquires pending now. */
  waiting: number
  /** Leases granted. */
  acquired: number
  /** Of these, the leases for which a call had to wait in the queue. */
  waited: number
  /** How long these calls waited in total, in ms. */
  waitMs: Milliseconds
  /** How long the slowest of these calls waited, in ms. */
  longestWaitMs: Milliseconds
  /** Leases passed on within this process, without asking the store. */
  localHandOffs: number
  /** Leases that the store handed to a waiter of this client. */
  remoteHandOffs: number
  /** Leases released by their holder. */
  released: number
  /**
   * Leases detached, including those by which {@link LockClient.once} and schedules remember what
   * was done.
   */
  detached: number
  /** Leases lost. */
  lost: number
  /**
   * How often the client asked the store for a lock and another client held it. Keeping a place in
   * the queue does not count.
   */
  contended: number
  /** Acquires whose `wait` in the queue was over. */
  timeouts: number
  /** Acquires that were aborted. */
  aborted: number
  /** Successful renewals. */
  renewals: number
  /** Requests that the store answered with an error, or did not answer. */
  errors: number
  /** The servers of the store; none for stores without a network, `memory:` and `sqlite:`. */
  stores: StoreHealth[]
}

/**
 * The state of one server, as its circuit breaker sees it. If a server was out of reach several
 * times in a row (`unreachable`, or `timeout` for long enough), the client does not ask it again
 * until a probe has found it. Meanwhile {@link LockClient.tryAcquire} and the like fail at once,
 * and so do calls with {@link AcquireOptions.failFast}. Other calls that wait go on waiting. A
 * probe looks for the server at least twice a second while clients ask. Renewals are still tried.
 * All clients of one store in a process share the breakers.
 */
export interface StoreHealth {
  /** The URL of the server, without a password. */
  store: string
  /**
   * `closed`: the server gets requests. `open`: it gets none. `half-open`: it gets none but a
   * probe, which is under way. `refusing`: it gets requests, and has answered at least three
   * acquires in a row that it can't be used (see `reason`: `denied`, `full`, `readonly`, …).
   * `refusing` ends when the server has accepted an acquire of the refused kind, and has refused
   * none for one second.
   */
  state: 'closed' | 'open' | 'half-open' | 'refusing'
  /**
   * How many times in a row the server had failed or refused at that moment, including probes; 0 if
   * it is `closed`. While it is `open`, each probe updates it: {@link LockClient.stats} shows it
   * growing.
   */
  failures: number
  /**
   * Since when the server is there, is away (`open` and `half-open` count as one), or refuses: ms
   * since 1970, by this host's clock.
   */
  since: number
  /** How the server failed last, or why it refuses; missing if it is `closed`. */
  reason?: StoreUnavailableReason
}

/** The result of {@link LockClient.diagnose}. */
export interface Diagnosis {
  /** Whether no finding is worse than `info`. */
  ok: boolean
  /** What may go wrong. */
  findings: Finding[]
  /**
   * The measurements: one for each server, or for the place of the leases if the store has no
   * server.
   */
  stores: StoreFacts[]
}

/** One finding. */
export interface Finding {
  /** The URL of the store, without a password. */
  store: string
  /**
   * `info`: good to know. `warning`: locks may fail, or have two holders, in circumstances that the
   * message names. `error`: the store can't grant locks, or they don't keep their promises.
   */
  level: 'info' | 'warning' | 'error'
  /**
   * The kind of the finding, for programs: `eviction`, `nearly-full`, `persistence`, `clock`,
   * `replica-clock`, `slow`, `notices`, `slow-notices`, `no-listing`, `clients`,
   * `too-few-replicas`, `no-spare-replica`, `copy-delay`, `replicas`, `old`, `unchecked`,
   * `process-only`, `host-only`, `network-filesystem`, `exposed`; for a quorum `bare-majority`,
   * `even`, `missing-leases`, `same-server`; or a {@link StoreUnavailableReason}. Later versions
   * may have others.
   */
  code: string
  /**
   * A description for people: what the problem is, what it may lead to, and what to do about it.
   */
  message: string
}

/**
 * The measurements of one server. A value is `null` if the store has no server, or the server did
 * not answer.
 */
export interface StoreFacts {
  /** The URL of the server, without a password. */
  store: string
  /** The server's version. */
  version: string | null
  /** How long a request and its reply take, in ms: the median of five. */
  roundTrip: Milliseconds | null
  /** How many ms the server's clock is ahead of this host's, to within half a round trip. */
  clockOffset: Milliseconds | null
}
