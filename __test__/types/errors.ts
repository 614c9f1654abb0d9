// The errors are classes, which a program distinguishes by their class or their code.

import {
  type LockAbortedError,
  type LockClosedError,
  LockError,
  LockLostError,
  LockTimeoutError,
  type LossReason,
  type Milliseconds,
  StoreUnavailableError,
  type StoreUnavailableReason,
} from 'leasehold'
import { same } from './equal'

export function explain(error: unknown): string {
  if (error instanceof LockLostError) {
    same<typeof error.reason, LossReason>()
    same<typeof error.code, 'ERR_LOCK_LOST'>()
    return error.reason
  }
  if (error instanceof StoreUnavailableError) {
    same<typeof error.reason, StoreUnavailableReason>()
    return error.reason
  }
  if (error instanceof LockError) {
    same<typeof error.key, string | undefined>()
    same<typeof error.code, string>()
    return error.code
  }
  return 'unknown'
}

same<LockTimeoutError['code'], 'ERR_LOCK_TIMEOUT'>()
same<LockTimeoutError['holder'], string | undefined>()
same<LockTimeoutError['heldFor'], Milliseconds | undefined>()
same<LockTimeoutError['waiters'], number | undefined>()
same<LockAbortedError['code'], 'ERR_LOCK_ABORTED'>()
same<StoreUnavailableError['code'], 'ERR_STORE_UNAVAILABLE'>()
same<LockClosedError['code'], 'ERR_LOCK_CLOSED'>()

// Users construct errors in their tests.
export const made: LockError[] = [
  new LockError('ERR_LOCK_RELEASED', 'released', { key: 'key' }),
  new LockTimeoutError('late', { cause: new Error() }),
  new LockTimeoutError('late', { key: 'key', holder: 'web-1:4711', heldFor: 4_200, waiters: 3 }),
  new LockLostError('expired', 'lost'),
  new StoreUnavailableError('timeout', 'slow'),
]
// @ts-expect-error: a number
new LockTimeoutError('late', { heldFor: '4 s' })
// @ts-expect-error: no such reason
new LockLostError('bored', 'lost')
// @ts-expect-error: no reason at all
new StoreUnavailableError()
