// Opens the lock client of this process.

import { createLockClient, type LockClient } from 'leasehold'
import type { Config } from './config.js'
import type { Log } from './log.js'

export function openLocks({ redisUrl, instance }: Config, log: Log): LockClient {
  const locks = createLockClient({ store: redisUrl, name: instance })
  // The holder of a lost lock learns it from `lease.signal`. These lines are for operators.
  locks.on('lost', (lease, error) => log.error('lock lost', { key: lease.key, fence: lease.fence, error }))
  locks.on('error', (error) => log.error('lock client failed', { error }))
  locks.on('breaker', (health) => log.warn('lock store', { ...health }))
  return locks
}
