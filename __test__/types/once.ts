// Code with once() and schedule() that the compiler must accept, and code that it must refuse.

import { once } from 'node:events'
import {
  createLockClient,
  type Lease,
  type LockClient,
  type OnceOptions,
  type OnceOutcome,
  type Schedule,
  type ScheduledJob,
  type ScheduleOptions,
} from 'leasehold'
import { same } from './equal'

const locks: LockClient = createLockClient('memory:tests')

export async function doingOnce(signal: AbortSignal): Promise<void> {
  const options: OnceOptions = { keep: 60_000, ttl: 1_000, wait: 0, onFailure: 'keep', signal }
  const outcome = await locks.once('key', 'id', async (lease) => lease.fence, options)
  same<typeof outcome, OnceOutcome<number>>()
  same<typeof outcome.value, number | undefined>()
  if (outcome.ran) {
    same<typeof outcome.value, number>()
    same<typeof outcome.kept, boolean>()
  } else {
    same<typeof outcome.value, undefined>()
  }
  await locks.once('key', 'id', () => {})
  // @ts-expect-error: no id
  await locks.once('key', () => {})
  // @ts-expect-error: a string
  await locks.once('key', 7, () => {})
  // @ts-expect-error: nothing to run
  await locks.once('key', 'id')
  // @ts-expect-error: no such option
  await locks.once('key', 'id', () => {}, { expiry: 5 })
  // @ts-expect-error: forget or keep
  await locks.once('key', 'id', () => {}, { onFailure: 'retry' })
}

export async function listeningOnce(): Promise<void> {
  const chained = locks.once('lost', (lease, error) => {
    same<typeof lease, Lease>()
    same<typeof error.reason, 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'>()
  })
  same<typeof chained, LockClient>()
  await once(locks, 'breaker')
}

export async function scheduling(): Promise<void> {
  const options: ScheduleOptions = { timeZone: 'UTC', overlap: true, catchUp: 1_000, keep: 5_000, ttl: 50, unref: true }
  const job: ScheduledJob = async (lease, tick) => [lease.fence, tick.getTime()]
  const schedule = locks.schedule('name', '@daily', job, options)
  same<typeof schedule, Schedule>()
  same<typeof schedule.next, Date | null>()
  locks.schedule('name', '* * * * *', () => {})
  schedule.on('run', (tick, lease) => [tick.getTime(), lease.fence])
  schedule.on('missed', (tick, error) => {
    same<typeof tick, Date>()
    same<typeof error, Error | null>()
  })
  schedule.once('error', (error, tick) => {
    same<typeof error, Error>()
    same<typeof tick, Date>()
  })
  same<Awaited<ReturnType<typeof schedule.stop>>, void>()
  // @ts-expect-error: it is timeZone
  locks.schedule('name', '@daily', () => {}, { timezone: 'UTC' })
  // @ts-expect-error: a string
  locks.schedule('name', 5, () => {})
  await using both = locks.schedule('name', '@daily', () => {})
  both.stop()
}
