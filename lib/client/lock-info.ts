// A lock as the store reports it, and as users get it.

import type * as api from '../../index'

/** A lock as native code describes it: without the fields of its first lease. */
export type BareInfo = Omit<api.LockInfo, keyof api.LeaseInfo>

/**
 * Returns the lock with the fields of its first lease, which is mostly the only one. `servers` is
 * that of the lease that the fewest servers have: a caller may wait until all servers have all
 * leases.
 */
export function withFirst(info: BareInfo): api.LockInfo {
  const [first = { holder: null, fence: null, remaining: null }] = info.leases
  const told = info.leases.flatMap(({ servers }) => servers ?? [])
  if (told.length === 0) return { ...first, ...info }
  const servers = told.reduce((fewest, other) => (other.held < fewest.held ? other : fewest))
  return { ...first, ...info, servers }
}
