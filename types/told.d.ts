// What a client tells: of a lock, of itself, of its store.

import type { StoreUnavailableReason } from './errors'
import type { Milliseconds } from './units'

/**
 * Who holds a lock and who waits for it, as {@link LockClient.inspect} tells. `holder`, `fence` and `remaining` are those of
 * the first lease, which is the only one unless the lock is shared. `servers` is that of the lease
 * with the smallest `held`.
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

/** What {@link LockClient.list} takes. */
export interface ListOptions {
  /**
   * What the keys are like: `*` stands for any characters, `?` for one, and `\` takes the next one to the letter. Up to 1024
   * bytes. Default `*`.
   */
  pattern?: string | undefined
  /** How many locks to tell of at most: 1 to 10 000. Which of them, if there are more, is up to the store. Default 1000. */
  limit?: number | undefined
}

/** What {@link LockClient.list} tells. */
export interface LockList {
  /** The locks that are held, in the order of their keys. */
  locks: ListedLock[]
  /**
   * Whether these are all. `false` if there are more than `limit`, too many keys to look at in time, or more than the
   * client keeps: 4 MB of keys, or locks that take 48 MB of memory (about 180 000 waiters).
   */
  complete: boolean
}

/** One held lock of a {@link LockList}. */
export interface ListedLock extends LockInfo {
  /** Its key, without the client's prefix. */
  key: string
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
   * In which trace the call for it is, and which of its spans that is, as a `traceparent` of the W3C: `00-TRACE-SPAN-FLAGS`.
   * Missing unless the holder's client is instrumented with `leasehold/otel` and records that span. While a process hands the lease on among
   * its own, that of the call that was first when the store was asked last.
   */
  trace?: string
}

/** What is known of one who waits for a lock. */
export interface WaiterInfo {
  /** Its {@link LockClientOptions.name}. */
  holder: string
  /** Whether it would let others in. */
  shared: boolean
  /** For how long its place has been in the queue; in a process that hands a lock on among its own, that of whoever came first. */
  age: Milliseconds
  /** As {@link LeaseInfo.trace}. */
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
  /** Of these, the ones for which somebody had to wait in the queue. */
  waited: number
  /** How long these took in all. */
  waitMs: Milliseconds
  /** How long the slowest of these took. */
  longestWaitMs: Milliseconds
  /** Leases handed on within this process, without asking the store. */
  localHandOffs: number
  /** Leases handed to a waiter of this client by the store. */
  remoteHandOffs: number
  /** Leases given back by their holder. */
  released: number
  /** Leases detached, and those by which {@link LockClient.once} and schedules remember what was done. */
  detached: number
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
 * The state of one server, as its circuit breaker sees it. If a server was out of reach several
 * times in a row (`unreachable`, or `timeout` for long enough), the client does not ask it again
 * until a probe has found it. Meanwhile {@link LockClient.tryAcquire} and the like fail at once,
 * and so do calls with {@link AcquireOptions.failFast}. Other calls that wait go on waiting. A
 * probe looks for the server at least twice a second while clients ask. Renewals are still tried.
 * All clients of one store in a process share the breakers.
 */
export interface StoreHealth {
  /** Which server: its URL without a password. */
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
   * How many times in a row it had failed, or refused, when this was told, probes included; 0 when it is `closed`. While it is `open`, it is
   * told anew with each probe: {@link LockClient.stats} shows it growing.
   */
  failures: number
  /** Since when it is there, is not there (`open` and `half-open` are one), or refuses: ms since 1970, by this host's clock. */
  since: number
  /** How it failed last, or why it refuses; missing when it is `closed`. */
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
   * can't be had there, or don't keep what they promise.
   */
  level: 'info' | 'warning' | 'error'
  /**
   * Which it is, for programs: `eviction`, `nearly-full`, `persistence`, `clock`, `replica-clock`,
   * `slow`, `notices`, `clients`, `too-few-replicas`, `no-spare-replica`, `replicas`, `old`,
   * `unchecked`, `process-only`, `host-only`, `network-filesystem`, `exposed`; of a quorum
   * `bare-majority`, `even`, `missing-leases`, `same-server`; or a {@link StoreUnavailableReason}.
   * There may be others in later versions.
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
  roundTrip: Milliseconds | null
  /** By how much its clock is ahead of this host's, to within half a round trip. */
  clockOffset: Milliseconds | null
}
