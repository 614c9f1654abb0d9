// Code with a worker that the compiler must accept, and code that it must refuse.

import {
  createLockClient,
  createLockWorker,
  type Lease,
  type LockWorker,
  type LossReason,
  type StopReason,
  type WorkerState,
} from 'leasehold'
import { same } from './equal'

const worker: LockWorker = createLockWorker({ key: 'key', startWork() {} })
createLockWorker({
  client: createLockClient('memory:tests'),
  key: 'key',
  ttl: 5_000,
  retryInterval: 100,
  stopTimeout: Number.POSITIVE_INFINITY,
  workerId: 'w1',
  async startWork(lease, signal) {
    same<typeof lease, Lease>()
    same<typeof signal, AbortSignal>()
  },
  stopWork: async (reason) => {
    same<typeof reason, StopReason>()
    same<StopReason, 'stopped' | 'failed' | 'released' | LossReason>()
  },
})
// @ts-expect-error: no key
createLockWorker({ startWork() {} })
// @ts-expect-error: nothing to do
createLockWorker({ key: 'key' })
// @ts-expect-error: no such option
createLockWorker({ key: 'key', startWork() {}, onStart() {} })
// @ts-expect-error: of another library
createLockWorker({ key: 'key', startWork() {}, client: {} })

same<ReturnType<LockWorker['start']>, LockWorker>()
same<ReturnType<LockWorker['stop']>, Promise<void>>()
same<LockWorker['lease'], Lease | null>()
same<LockWorker['state'], WorkerState>()
// @ts-expect-error: read only
worker.state = 'idle'

worker
  .on('state', (state, previous) => {
    same<typeof state, WorkerState>()
    same<typeof previous, WorkerState>()
    // @ts-expect-error: no such state
    if (state === 'sleeping') return
  })
  .on('acquired', (lease) => lease.fence)
  .on('renewed', (lease) => lease.fence)
  .on('released', (lease) => lease.fence)
  .on('lost', (_lease, error) => error.reason)
  .on('error', (error) => {
    same<typeof error, Error>()
  })
