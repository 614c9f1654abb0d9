// The options with which a client is made and closed.

import type { TlsOptions } from './tls'
import type { Milliseconds } from './units'

/** The options of {@link createLockClient}. */
export interface LockClientOptions {
  /**
   * The URL of the store:
   *
   * - `memory:NAME`: this process and its worker threads.
   * - `sqlite:PATH`: all processes of this host.
   * - `redis://[user:password@]host[:port][/db]`, the same with `rediss://` for TLS, or
   *   `redis+unix:///path/to/socket`.
   * - `redis-sentinel://[user:password@]host[:port][,host[:port]…]/MASTER[?db=N]`
   *   (`rediss-sentinel://` for TLS): the hosts are sentinels, on port 26379 by default, and the
   *   login is for the master.
   * - `redis-cluster://[user:password@]host[:port][,host[:port]…]` (`rediss-cluster://` for TLS):
   *   some nodes; the client finds the others.
   *
   * For the default, see {@link createLockClient}. No message shows a password of a URL.
   *
   * Three or more URLs of independent servers, better an odd number, are a quorum: a client has a
   * lease when most of them have granted it, and fewer than half of them may fail (Redlock, with
   * fences). They must keep their data over a restart, or stay away for the longest `ttl`; see
   * docs/choosing-a-store.md. Commas or blanks between URLs in one string are an error.
   *
   * A client of ioredis or node-redis is an error (`ERR_INVALID_ARG_TYPE`), which has the URL to
   * use instead.
   */
  store?: string | readonly string[] | undefined
  /**
   * The Redis user name, if it is not in the URL: up to 1024 bytes. A different one there is an
   * error, as for `password`.
   */
  username?: string | undefined
  /**
   * The Redis password, if it is not in the URL: up to 65 536 bytes. A different one there is an
   * error.
   */
  password?: string | undefined
  /**
   * The certificates for a store that is reached over TLS (`rediss://`, `rediss-sentinel://`):
   * those to trust, and those to present.
   */
  tls?: TlsOptions | undefined
  /**
   * The user name at the sentinels, if they need one: up to 1024 bytes. Only for
   * `redis-sentinel://`, as is `sentinelPassword`.
   */
  sentinelUsername?: string | undefined
  /** The password at the sentinels, if they need one: up to 65 536 bytes. */
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
  /**
   * How long a lease lives without renewal, in ms: 10 to 2 147 483 647. Default 10 000. Choose at
   * least 1000: one slow round trip, or a short pause of the process or its machine, can end a
   * lease with a ttl below 100 ms.
   */
  ttl?: Milliseconds | undefined
  /**
   * How long {@link LockClient.acquire} waits, in ms: 0 to 2 147 483 647, or `Infinity`.
   * Default 10 000.
   */
  wait?: Milliseconds | undefined
  /**
   * Whether calls that would wait for a lock reject while the store can't grant leases: see
   * {@link AcquireOptions.failFast}, which overrides it for a call. {@link LockClient.tryAcquire}
   * always fails fast. Workers, schedules and {@link LockClient.adopt} never do. Default `false`.
   */
  failFast?: boolean | undefined
  /**
   * How long the client renews leases while the JavaScript thread is blocked, in ms: 100 to
   * 2 147 483 647, or `Infinity`. So a hung process does not hold a lock for ever. Default 60 000.
   */
  maxStall?: Milliseconds | undefined
  /** How long one call to the store may take, in ms: 10 to 60 000. Default 1000. */
  storeTimeout?: Milliseconds | undefined
  /**
   * How many times in a row this process may pass a lock between its own waiters without asking the
   * store: 0 to 1000. After that many times, or after 10 ms, it asks whether others wait. While
   * others wait, the same limits, this number and 10 ms, apply to each turn of the process. With 0,
   * waiters are served strictly in arrival order, at one round trip each. Default 32.
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
   * processes forward a signal that the process has got already. If other code listens with
   * `process.once()`, a second signal ends the process after the drain, even within 500 ms: that
   * code may have raised the signal. Main thread only. Default none. Signals that end no process by
   * default, such as SIGCHLD and SIGWINCH, are refused.
   */
  releaseOnSignal?: NodeJS.Signals[] | undefined
}

/** Options of {@link LockClient.close}. */
export interface CloseOptions {
  /**
   * Limits how long sections may take to end, in ms: 0 to 2 147 483 647, or `Infinity`. Default:
   * the client's `drain`.
   */
  drain?: Milliseconds | undefined
}
