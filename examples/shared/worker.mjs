// The lock worker: the server that holds the lock does the jobs, one after the other, in order.

import { setTimeout as sleep } from 'node:timers/promises'
import { createLockWorker } from 'leasehold'

/** How many jobs an empty list gets at the start. */
const FIRST_JOBS = 12

/** Creates the worker. `addKey` is the lock under which jobs are added. */
export function createJobWorker({ client, jobs, jobMs, workerId, lockKey, addKey }) {
  const worker = createLockWorker({
    client,
    key: lockKey,
    workerId,

    async startWork(lease, signal) {
      console.log('Lock acquired. Starting work', { workerId })
      await jobs.begin(workerId, lease.fence)
      await client.withLock(addKey, async () => {
        if ((await jobs.list()).count === 0) await jobs.add(FIRST_JOBS)
      })

      // `signal` aborts when the work has to end: after the current job, if the lock is still held.
      while (!signal.aborted) {
        const job = await jobs.next()
        if (job === undefined) {
          await sleep(200)
          continue
        }
        console.log('Doing some heavy work...', { workerId, job })
        // `lease.signal` aborts when the lock is lost. Then another server does the current job.
        await sleep(jobMs, undefined, { signal: lease.signal })
        await jobs.finish(job, workerId, lease.fence)
      }
    },

    // All work ends by the signal. The lock is released when startWork has returned.
    stopWork: (reason) => console.log('Stop work', { workerId, reason }),
  })

  worker.on('state', (state) => {
    if (state === 'acquiring') console.log('Trying to acquire lock', { workerId })
    if (state === 'waiting') console.log('Waiting for the lock', { workerId })
    if (state === 'releasing') console.log('Releasing lock', { workerId })
  })
  worker.on('lost', (_lease, { reason }) => console.log('Lock lost', { workerId, reason }))
  worker.on('error', (error) => console.error('Worker:', error.message, { workerId }))
  return worker
}
