// Listeners of a client, a worker and a schedule that the compiler must accept, and those that it
// must refuse.

import { EventEmitter, on, once } from 'node:events'
import {
  createLockClient,
  createLockWorker,
  type Emitter,
  type Lease,
  type LockClient,
  type LockClientEvents,
  type LockLostError,
  type LockWorker,
  type LockWorkerEvents,
  type Schedule,
  type ScheduleEvents,
  type StoreHealth,
} from 'leasehold'
import { same } from './equal'

const locks: LockClient = createLockClient('memory:types')
const worker: LockWorker = createLockWorker({ key: 'key', startWork() {} })
const schedule: Schedule = locks.schedule('name', '@daily', () => {})

export function theClient(): void {
  const lost = (lease: Lease, error: LockLostError) => console.error(lease.key, error.reason)
  const chained = locks.on('lost', lost).once('lost', lost).off('lost', lost).addListener('lost', lost)
  same<typeof chained, LockClient>()
  locks.prependListener('lost', lost).prependOnceListener('lost', lost).removeListener('lost', lost)
  locks.on('breaker', (health) => {
    same<typeof health, StoreHealth>()
  })
  locks.on('error', (error) => {
    same<string | undefined, typeof error.code>()
  })
  // @ts-expect-error: no such event
  locks.on('lsot', () => {})
  // @ts-expect-error: no such event
  locks.once('lsot', () => {})
  // @ts-expect-error: no such event
  locks.off('lsot', () => {})
  // @ts-expect-error: no such event
  locks.addListener('lsot', () => {})
  // @ts-expect-error: no such event
  locks.removeListener('lsot', () => {})
  // @ts-expect-error: no such event
  locks.prependListener('lsot', () => {})
  // @ts-expect-error: no such event
  locks.prependOnceListener('lsot', () => {})
  // @ts-expect-error: no such event
  locks.removeAllListeners('lsot')
  // @ts-expect-error: no such event
  locks.listenerCount('lsot')
  // @ts-expect-error: an event of the worker
  locks.on('acquired', () => {})
  // @ts-expect-error: one parameter too many
  locks.on('error', (_error, _more) => {})
  // @ts-expect-error: the argument is a lease
  locks.on('lost', (_lease: string) => {})
}

export function theWorker(): void {
  worker.on('error', (error) => {
    same<typeof error, Error>()
  })
  worker.once('lost', (lease, error) => [lease.key, error.reason])
  // Several events have the same arguments.
  for (const event of ['acquired', 'renewed', 'released'] as const) worker.on(event, (lease) => lease.fence)
  // @ts-expect-error: no such event
  worker.on('aquired', () => {})
  // @ts-expect-error: no such event
  worker.once('aquired', () => {})
  // @ts-expect-error: no such event
  worker.off('aquired', () => {})
  // @ts-expect-error: one parameter too many
  worker.on('acquired', (_lease, _more) => {})
}

export function theSchedule(): void {
  schedule.on('run', (tick, lease) => [tick.getTime(), lease.fence])
  // @ts-expect-error: no such event
  schedule.on('runs', () => {})
  // @ts-expect-error: no such event
  schedule.once('runs', () => {})
  // @ts-expect-error: the tick is first
  schedule.on('run', (lease: Lease) => lease.fence)
}

/** Uses an event that is known only at run time. */
export function anyEvent(event: keyof ScheduleEvents, args: ScheduleEvents[keyof ScheduleEvents]): void {
  schedule.on(event, (...args) => {
    same<(typeof args)[0], Date | Error>()
  })
  schedule.emit(event, ...args)
  // @ts-expect-error: no such event
  schedule.on(event as string, () => {})
  // @ts-expect-error: no event has a number
  schedule.emit(event, 5)
}

/** A function of a user, generic in the events. */
export function forward<Events extends Record<keyof Events, unknown[]>>(
  from: Emitter<Events>,
  to: Emitter<Events>,
  event: keyof Events,
): void {
  from.on(event, (...args) => to.emit(event, ...args))
}

export function emitting(lease: Lease): void {
  const hadListeners: boolean = worker.emit('acquired', lease)
  const names: (keyof LockWorkerEvents)[] = worker.eventNames()
  const [first] = worker.listeners('acquired')
  if (hadListeners && names.length > 0 && worker.listenerCount('acquired') > 0) first?.(lease)
  worker.setMaxListeners(20).removeAllListeners('acquired').removeAllListeners()
  // @ts-expect-error: no lease
  worker.emit('acquired')
  // @ts-expect-error: no such event
  worker.emit('aquired', lease)
}

/** Functions of Node accept these emitters. */
export async function withNode(signal: AbortSignal): Promise<void> {
  await once(worker, 'acquired', { signal })
  await once(locks, 'lost')
  await once(schedule, 'run')
  for await (const [lease] of on(worker, 'acquired', { signal })) console.log((lease as Lease).fence)
  const any: EventEmitter[] = [locks, worker, schedule]
  const nodes: NodeJS.EventEmitter[] = [locks, worker, schedule]
  for (const emitter of [...any, ...nodes]) emitter.on('error', console.error)
  // So do types with a map of events.
  const typed: EventEmitter<LockClientEvents> = locks
  typed.on('lost', (lease, error) => [lease.key, error.reason])
  const others: [EventEmitter<LockWorkerEvents>, EventEmitter<ScheduleEvents>] = [worker, schedule]
  for (const emitter of others) emitter.setMaxListeners(20)
  const typedNode: NodeJS.EventEmitter<LockClientEvents> = locks
  typedNode.once('breaker', (health) => health.store)
  function countOf<Events extends Record<keyof Events, any[]>>(emitter: EventEmitter<Events>): number {
    return emitter.eventNames().length
  }
  console.log(countOf<LockClientEvents>(locks), countOf<LockWorkerEvents>(worker), countOf<ScheduleEvents>(schedule))
  if (locks instanceof EventEmitter) locks.setMaxListeners(0)
}

/** A function of a user that accepts any object with the event. */
export function firstFence(source: Pick<Emitter<LockWorkerEvents>, 'once'>): Promise<number> {
  return new Promise((resolve) => {
    source.once('acquired', (lease) => resolve(lease.fence))
  })
}
void firstFence(worker)
