// The events of a client.

import type { LockLostError } from './errors'
import type { StoreHealth } from './info'
import type { Lease } from './lease'

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
   * Emitted when a server of the store is gone, as its circuit breaker sees it (`state` is `open`),
   * when it refuses to be used (`refusing`: a wrong password, no memory left, a replica), and when
   * it is back (`closed`): see {@link StoreHealth}. In a quorum with enough other servers, only
   * this event reports it. It is emitted once for each change; {@link LockClient.stats} shows the
   * probes that fail meanwhile. If a server is already known to be gone, or to refuse, when you
   * open the client, the event follows at once.
   */
  breaker: [health: StoreHealth]
}
