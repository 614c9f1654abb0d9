// Reads the state that the pages show.

/** How many of the newest jobs and holders are shown. */
const SHOWN = { jobs: 60, tenures: 6 }

export async function stateOf({ locks, jobs, worker, lockKey }) {
  const [lock, { count, done, tenures }] = await Promise.all([locks.inspect(lockKey), jobs.list()])
  const first = Math.max(1, count - SHOWN.jobs + 1)
  return {
    server: { workerId: worker.workerId, state: worker.state },
    holder: lock && { name: lock.holder, fence: lock.fence },
    waiters: lock?.waiters.map(({ holder }) => holder) ?? [],
    count,
    first,
    done: done.filter((entry) => entry.done >= first),
    finished: done.length,
    tenures: tenures.slice(-SHOWN.tenures).reverse(),
  }
}
