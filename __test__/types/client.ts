// What a user of a client may write, and what the compiler has to refuse.

import { EventEmitter } from 'node:events'
import {
  type AcquireOptions,
  createLockClient,
  type Lease,
  type LockClient,
  type LockClientOptions,
  type LockInfo,
  type LockStats,
} from 'leasehold'
import { same } from './equal'

const locks: LockClient = createLockClient()
createLockClient('redis://localhost')
createLockClient({ store: 'memory:tests', ttl: 5_000, wait: Number.POSITIVE_INFINITY, releaseOnSignal: ['SIGTERM'] })
createLockClient({} satisfies LockClientOptions)
// @ts-expect-error: no such option
createLockClient({ tll: 5_000 })
// @ts-expect-error: a number
createLockClient({ ttl: '10s' })
// @ts-expect-error: no such signal
createLockClient({ releaseOnSignal: ['SIGNONE'] })
// @ts-expect-error: no URL
createLockClient(6379)

same<ReturnType<LockClient['acquire']>, Promise<Lease>>()
same<ReturnType<LockClient['tryAcquire']>, Promise<Lease | null>>()
same<ReturnType<LockClient['inspect']>, Promise<LockInfo | null>>()
same<ReturnType<LockClient['stats']>, LockStats>()

export async function acquiring(signal: AbortSignal): Promise<void> {
  const options: AcquireOptions = { ttl: 1_000, wait: 0, signal, autoRenew: false, maxHold: 60_000 }
  const lease = await locks.acquire('key', options)
  same<typeof lease.fence, number>()
  same<typeof lease.token, string>()
  same<typeof lease.signal, AbortSignal>()
  // @ts-expect-error: read only
  lease.fence = 7
  lease.assertHeld()
  await lease.renew()
  await lease.renew(20_000)
  same<Awaited<ReturnType<typeof lease.release>>, boolean>()

  const maybe = await locks.tryAcquire('key', { ttl: 1_000 })
  // @ts-expect-error: perhaps null
  maybe.release()
  // @ts-expect-error: it never waits
  await locks.tryAcquire('key', { wait: 100 })
  // @ts-expect-error: not a string
  await locks.acquire(7)
  // @ts-expect-error: no such option
  await locks.acquire('key', { timeout: 7 })
}

export async function withLock(): Promise<void> {
  same<number, Awaited<ReturnType<typeof fromAsync>>>()
  const fromAsync = () => locks.withLock('key', async (lease) => lease.fence)
  const fromSync = () => locks.withLock('key', { ttl: 500 }, (lease) => lease.key)
  same<string, Awaited<ReturnType<typeof fromSync>>>()
  await locks.withLock('key', undefined, () => {})
  // @ts-expect-error: nothing to run
  await locks.withLock('key')
  // @ts-expect-error: nothing to run
  await locks.withLock('key', { ttl: 500 })
}

export function events(): void {
  const emitter: EventEmitter = new EventEmitter()
  emitter.emit('anything')
  locks.on('lost', (lease, error) => {
    same<typeof lease, Lease>()
    same<typeof error.reason, 'expired' | 'taken' | 'missing' | 'stalled' | 'closed'>()
  })
  locks.once('error', (error) => {
    same<string, typeof error.code>()
  })
  // @ts-expect-error: one parameter too many
  locks.on('error', (_error, _more) => {})
}

export async function disposal(): Promise<void> {
  await using client = createLockClient('memory:tests')
  await using lease = await client.acquire('key')
  lease.assertHeld()
}
