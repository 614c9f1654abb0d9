import leasehold = require('leasehold')

export const locks: leasehold.LockClient = leasehold.createLockClient()
// @ts-expect-error: no such export
leasehold.createLock
