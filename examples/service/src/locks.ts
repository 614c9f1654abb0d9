// The lock client of this process.

import { createLockClient, type LockClient } from 'leasehold'
import type { Config } from './config.js'
import type { Log } from './log.js'

export function openLocks({ redisUrl, instance }: Config, log: Log): LockClient {
  const locks = createLockClient({ store: redisUrl, name: instance })
  // Whoever worked under the lock is told by its own signal; this is for those who watch the service.
  locks.on('lost', (lease, error) => log.error('lock lost', { key: lease.key, fence: lease.fence, error }))
  locks.on('error', (error) => log.error('lock client failed', { error }))
  locks.on('breaker', (health) => log.warn('lock store', { ...health }))
  return locks
}
