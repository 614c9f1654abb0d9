// The part of a client that its locks, schedules and workers use. It is a separate object, so that
// users do not see it.

import type { LeaseOwner } from './lease-owner'
import type { Outage } from './outage'
import type { Pauses } from './pause'
import type { Sections } from './sections'
import type { Checker } from './side-keys'

export interface ClientContext extends LeaseOwner {
  /** Set by the client. See {@link LeaseOwner.isDrained}. */
  isDrained: boolean
  /** Functions that the client calls when it begins to close. */
  readonly pauses: Pauses
  readonly sections: Sections
  readonly outage: Outage
  /** The names of the client's schedules. */
  readonly schedules: Set<string>
  /** Returns whether the client has an `'error'` listener. */
  hasErrorListener(): boolean
  /** Throws if the client was closed. */
  checkOpen(key?: string): void
  /** Throws if a key, with the client's prefix, names a side key. */
  readonly checkNames: Checker
}
