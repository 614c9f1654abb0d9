// The flag of requests that do not wait for a store that can't grant leases.

import { Flag } from '../native/protocol'

/** Returns `flags` with or without {@link Flag.FailFast}. */
export function withFailFast(flags: number, failFast: boolean): number {
  return failFast ? flags | Flag.FailFast : flags & ~Flag.FailFast
}
