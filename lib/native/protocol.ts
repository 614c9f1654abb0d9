// The numbers that JavaScript and native code have agreed on.
//
// Generated from src/binding/protocol.rs by scripts/generate-protocol.mjs: change that file
// instead.

/** Counts the numbers of an operation: its code, its slot, and the values `a` to `e`. */
export const OPERATION_LENGTH = 7

/** Selects the operation in a code. The other bits of a code are flags. */
export const OPERATION_MASK = 15

/** Counts the numbers of a record: its slot, its kind, and the values `a` and `b`. */
export const RECORD_LENGTH = 4

/** Names no client: clients are counted from 1. */
export const NO_CLIENT = 0

/**
 * The `wait` of an acquire that does not wait. With Infinity, it waits until the client closes.
 */
export const NO_WAIT = -1

/** The `maxHold` of a lease that may be held for any time. */
export const NO_MAX_HOLD = 0

/** The `ttl` of a renewal or a detachment that uses the lease's own. */
export const OWN_TTL = 0

/** The first {@link Phase} of a lost lease. */
export const FIRST_LOSS = 4

/**
 * Marks an {@link ErrorKind} whose error has the votes of a quorum. Its text is then JSON:
 * `{ message, votes: [{ store, vote, message }] }`, and `vote` is a word or an {@link ErrorKind}.
 */
export const WITH_VOTES = 32

/**
 * The operations. Each has a slot and up to five values. Its texts follow in their order.
 *
 * Operations marked "new slot" begin the slot; the others name the slot of a lease or of a
 * pending operation. The records that answer an operation are behind the arrow.
 */
export const Operation = {
  /**
   * a: client, b: ttl in ms, c: wait in ms or `NO_WAIT`, d: maxHold in ms or `NO_MAX_HOLD`,
   * e: see `Most`; texts: key, and trace with `Flag.Traced`; new slot -> Acquired, and then
   * the slot is the lease's | Busy | TimedOut | Failed | Closed | Cancelled
   */
  Acquire: 0,
  /** -> Released | Failed | Lost */
  Release: 1,
  /** a: ttl in ms or `OWN_TTL` -> Renewed | RenewFailed | Lost */
  Renew: 2,
  /** -> the slot's last record, of any kind */
  Cancel: 3,
  /** a: client; new slot -> Done | Failed */
  Ping: 4,
  /** a: client; text: key; new slot -> Inspected | Failed */
  Inspect: 5,
  /** a: client; new slot -> Done */
  CloseClient: 6,
  /**
   * a: client, b: ttl in ms, c: maxHold in ms or `NO_MAX_HOLD`, d: fence; texts: key, token,
   * and trace with `Flag.Traced`; new slot -> Adopted, then Acquired, and then the slot is
   * the lease's | Lost | Failed | Closed | Cancelled
   */
  Adopt: 7,
  /**
   * a: ttl in ms or `OWN_TTL`, b: 1 if the end of the client leaves the lease at the store
   * -> Detached | RenewFailed, and the lease stays held | Lost
   */
  Detach: 8,
  /** a: client, b: ttl in ms; new slot -> Diagnosed | Failed */
  Diagnose: 9,
  /** a: client; text: key; new slot -> Released | Failed */
  Break: 10,
  /** a: client, b: how many locks at most; text: pattern; new slot -> Listed | Failed */
  List: 11,
  /** a: client; no slot, no answer */
  DrainClient: 12,
  /** No answer */
  StopRenewing: 13,
  /** text: the token of a lost lease that its holder has released; no slot, no answer */
  ReleaseLost: 14,
} as const

/** Bits that are added to the code of an acquire or an adoption. */
export const Flag = {
  /** The engine does not renew the lease. */
  NoRenewal: 16,
  /** The engine reports its renewals: AutoRenewed */
  ReportRenewals: 32,
  /** The last text is the `traceparent` of the current trace. */
  Traced: 64,
  /**
   * The lease lives until its ttl ends, even if this process is gone. Without this bit, the
   * embedded store frees the lease as soon as this process is gone.
   */
  OutlivesProcess: 128,
  /** The lease belongs to a section, which a drain lets end. */
  Section: 256,
  /** The ttl of the adoption comes from its ticket. */
  TicketTtl: 512,
  /** The acquire does not wait for a store that can't grant leases. */
  FailFast: 1024,
} as const

/**
 * How many clients may hold a lock at a time. A number between these two is the number of
 * permits of a semaphore.
 */
export const Most = {
  /** One exclusive holder. */
  Exclusive: 0,
  /** Any number. */
  Readers: 4_294_967_295,
} as const

/**
 * The kinds of records about a slot. "Last": no record of the slot follows. A text is an
 * index, for `Bridge.text`.
 */
export const RecordKind = {
  /** a: fence */
  Acquired: 0,
  /** Last */
  Busy: 1,
  /** a: 1 if its own client holds the lock; last */
  TimedOut: 2,
  /** a: see `ErrorKind`, b: text; last */
  Failed: 3,
  /** Last */
  Closed: 4,
  /** Last */
  Cancelled: 5,
  /** a: 1 if the store still knew the lease, or if the lock to break was held; last */
  Released: 6,
  /**
   * a: phase, b: one more than the text with the JSON of what is known of the loss, or 0;
   * last
   */
  Lost: 7,
  /** No values */
  Renewed: 8,
  /** a: see `ErrorKind`, b: text */
  RenewFailed: 9,
  /** No values */
  AutoRenewed: 10,
  /** a: 1, b: text with JSON; or 0 if the lock is free; last */
  Inspected: 11,
  /** Last */
  Done: 12,
  /** Last */
  Detached: 13,
  /** a: text with JSON */
  Breaker: 14,
  /** a: 1, b: text with JSON; last */
  Diagnosed: 15,
  /** a: 1, b: text with JSON; last */
  Listed: 16,
  /** a: the ttl in ms of the lease that is being adopted, b: 1 if the lease is shared */
  Adopted: 17,
  /** a: see `Availability` */
  Availability: 18,
} as const

/** Says whether the store can grant leases, as its circuit breakers know it. */
export const Availability = {
  /** The store can grant leases, as far as the client knows. */
  Usable: 0,
  /** The store has refused several acquires in a row. */
  Refusing: 1,
  /** Requests fail at once, and are not sent. */
  Away: 2,
} as const

/** The phases of a lease. From {@link FIRST_LOSS} on, it is lost. */
export const Phase = {
  /** Asked for, not yet granted. */
  Pending: 0,
  /** Held until its deadline. */
  Held: 1,
  /** Held until its deadline, but not renewed, because the JavaScript thread does not answer. */
  Stalled: 2,
  /** The holder gave it back. */
  Released: 3,
  /** The lease was not renewed in time, or was held for its `maxHold`. */
  Expired: 4,
  /** Another client holds the lock. */
  Taken: 5,
  /** The store does not know it any more. */
  Missing: 6,
  /** The JavaScript thread did not answer for `maxStall`. */
  StalledTooLong: 7,
  /** The client was closed. */
  Closed: 8,
} as const

/**
 * Why a request to a store failed. The errors from `Denied` on do not pass by themselves,
 * except some of a quorum.
 */
export const ErrorKind = {
  /** No connection. */
  Unreachable: 0,
  /** No answer in time, or too few replicas in time. */
  Timeout: 1,
  /** The server will answer soon. */
  Loading: 2,
  /** The server takes no writes. */
  ReadOnly: 3,
  /** The server is short of memory or disk. */
  Full: 4,
  /** User, password or rights are wrong. */
  Denied: 5,
  /** The server is no store that can be used. */
  Unsupported: 6,
  /** The key is not a lock. */
  WrongType: 7,
  /** A bug in the store or in this library. */
  Internal: 8,
  /** The server's certificate is not trusted. */
  Untrusted: 9,
  /** Too few nodes of a quorum. */
  Quorum: 10,
} as const

/** What happens to a lock worker; `src/worker.rs` says what each event means. */
export const WorkerEvent = {
  /** Begin to campaign. */
  Start: 0,
  /** End. */
  Stop: 1,
  /** The lock was granted. */
  Granted: 2,
  /** Another client holds the lock. */
  Busy: 3,
  /** The store failed. */
  Unavailable: 4,
  /** A sleep has ended. */
  Rested: 5,
  /** The lease is lost. */
  Lost: 6,
  /** The work failed, or gave the lease away. */
  WorkFailed: 7,
  /** The work has ended. */
  WorkEnded: 8,
  /** The release has ended. */
  Released: 9,
} as const

/** What the driver of a lock worker has to do; `src/worker.rs` says what each effect means. */
export const WorkerEffect = {
  /** Ask for the lock, and do not wait for it. */
  TryAcquire: 0,
  /** Wait in the queue for the lock. */
  Queue: 1,
  /** Do nothing for the retry interval. */
  Sleep: 2,
  /** Begin the work. */
  StartWork: 3,
  /** End the work. */
  EndWork: 4,
  /** Release the lease. */
  Release: 5,
  /** Cancel what TryAcquire, Queue or Sleep began. */
  Cancel: 6,
  /** The worker has come to rest. */
  Rest: 7,
} as const

/** The kinds after which other records of their slot may follow, as bits. */
const FOLLOWED =
  (1 << RecordKind.Acquired) |
  (1 << RecordKind.Renewed) |
  (1 << RecordKind.RenewFailed) |
  (1 << RecordKind.AutoRenewed) |
  (1 << RecordKind.Breaker) |
  (1 << RecordKind.Adopted) |
  (1 << RecordKind.Availability)

/** Returns true if no record of the slot follows one of this kind. */
export function isLastRecord(kind: number): boolean {
  return ((FOLLOWED >> kind) & 1) === 0
}
