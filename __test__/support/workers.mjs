// Lock workers that record what happens to them.

import { randomUUID } from 'node:crypto'
import { createLockWorker } from 'leasehold'
import { atEnd } from './endings.mjs'

/**
 * Starts a worker that is stopped after the test: { worker, key, states, calls, errors, lost }.
 * `calls` has one line for each call of startWork ("start FENCE") and stopWork ("stop REASON") that
 * `options` doesn't replace.
 */
export function startWorker(t, store, options = {}) {
  const record = { key: randomUUID(), states: [], calls: [], errors: [], lost: [] }
  const key = options.key ?? record.key
  const { stopWork, ...rest } = options
  const worker = createLockWorker({
    store,
    startWork(lease) {
      record.calls.push(`start ${lease.fence}`)
    },
    ...rest,
    key,
    stopWork(reason) {
      record.calls.push(`stop ${reason}`)
      return stopWork?.(reason)
    },
  })
  worker.on('state', (state) => record.states.push(state))
  worker.on('error', (error) => record.errors.push(error))
  worker.on('lost', (_, error) => record.lost.push(error.reason))
  atEnd(t, () => worker.stop())
  return Object.assign(record, { key, worker: worker.start() })
}
