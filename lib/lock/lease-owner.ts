// The objects that are told of a lease's events: the client that owns it, and an observer.

import type * as api from '../../index'
import type { ClientIdentity } from '../diagnostics/tracing'
import type { Timeouts } from './timeouts'

/** The client that a lease belongs to. */
export interface LeaseOwner {
  readonly id: number
  /** Who the client is, for channels and messages. Made on the first read. */
  readonly identity: ClientIdentity
  /** How many ms this thread may be blocked before the client's leases are no longer renewed. */
  readonly maxStall: number
  /**
   * Whether the client has closed and its drain is over. A lease that is granted after that begins
   * no section.
   */
  readonly isDrained: boolean
  /** The calls whose wait has ended. */
  readonly timeouts: Timeouts
  /** Returns whether the client has a `'lost'` listener. */
  hasLossListener(): boolean
  lost(lease: api.Lease, error: api.LockLostError): void
  /** Reports a failure that no promise rejects with. */
  failed(error: unknown): void
}

/** Observes a lease in addition to its owner, as a worker does. */
export interface LeaseObserver {
  renewed(lease: api.Lease): void
  /** Called once, while release() or detach() runs. */
  released(lease: api.Lease): void
  lost(lease: api.Lease, error: api.LockLostError): void
}
