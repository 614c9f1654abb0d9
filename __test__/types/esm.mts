import * as leasehold from 'leasehold'
import { createLockClient, LockError } from 'leasehold'

export const locks: leasehold.LockClient = createLockClient()
export const caught = (error: unknown): boolean => error instanceof LockError
// @ts-expect-error: no such export
leasehold.createLock
