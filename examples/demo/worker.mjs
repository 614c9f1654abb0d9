// One of the demo's processes: competes for the lock and, while it holds the lock, does the next
// jobs.

import { createRequire } from 'node:module'
import { setTimeout as sleep } from 'node:timers/promises'
import { nextJob, writeEntry } from './ledger.mjs'

const { createLockWorker } = createRequire(import.meta.url)('../..')
const { name, store, key, ttl, ledger, jobs, pace, withoutLock } = JSON.parse(process.argv[2])

/** All processes of a host share this clock, so times of different ones can be subtracted. */
const now = () => Number(process.hrtime.bigint()) / 1e6

const tell = (event, details = {}) => process.connected && process.send({ event, at: now(), ...details })

async function work(lease, signal) {
  tell('working', { withoutLock })
  for (let job = nextJob(ledger); job <= jobs && !signal.aborted; job++) {
    await sleep(pace)
    // The job counts when its line is in the ledger. A process that has lost the lock must not
    // write it.
    lease.assertHeld()
    writeEntry(ledger, { job, fence: lease.fence, by: name })
    tell('done', { job })
  }
  if (nextJob(ledger) > jobs) tell('finished')
}

/** Shows what goes wrong without a lock: every process works as if it were the holder. */
function workerWithoutLock() {
  const stopped = new AbortController()
  let working
  return {
    start: () => {
      working = work({ fence: 0, assertHeld() {} }, stopped.signal)
    },
    stop: async () => {
      stopped.abort()
      await working
    },
  }
}

function workerWithLock() {
  // The default retryInterval suits a server. Here, a worker tries again soon after an error of the
  // store.
  const worker = createLockWorker({ store, key, ttl, retryInterval: 1000, workerId: name, startWork: work })
  worker.on('state', (state) => state === 'waiting' && tell('waiting'))
  worker.on('released', () => tell('released'))
  worker.on('lost', (_lease, error) => tell('lost', { message: error.message }))
  worker.on('error', (error) => tell('error', { message: error.message }))
  return worker
}

const worker = withoutLock ? workerWithoutLock() : workerWithLock()

// Ctrl-C reaches all processes of the terminal. Only the demo itself ends this one.
process.on('SIGINT', () => {})
process.on('disconnect', () => process.exit())
process.on('message', async () => {
  await worker.stop()
  process.disconnect()
})

tell('started', { pid: process.pid })
worker.start()
