// Code with a client that the compiler must accept, and code that it must refuse.

import {
  type AcquireOptions,
  createLockClient,
  type Diagnosis,
  type Done,
  type HeldOf,
  type Keys,
  type Lease,
  type LeaseInfo,
  type Lock,
  type LockCallback,
  type LockClient,
  type LockClientOptions,
  type LockInfo,
  type LockStats,
  type Milliseconds,
  type MultiLease,
  type ReadWriteLock,
  type RetryOptions,
  type Semaphore,
  type StoreHealth,
  type WaiterInfo,
} from 'leasehold'
import { same } from './equal'

const locks: LockClient = createLockClient()
createLockClient('redis://localhost')
createLockClient({ store: 'memory:tests', ttl: 5_000, wait: Number.POSITIVE_INFINITY, releaseOnSignal: ['SIGTERM'] })
createLockClient({ store: 'memory:tests', handOffs: 0, drain: Number.POSITIVE_INFINITY })
same<ReturnType<LockClient['close']>, Promise<void>>()
locks.close({ drain: 0 })
// @ts-expect-error: no such option
locks.close({ timeout: 0 })
createLockClient({ store: 'rediss://localhost', tls: { ca: ['-----BEGIN', Buffer.from('')], servername: 'redis' } })
createLockClient({ store: 'redis-sentinel://one,two/mymaster', sentinelPassword: 'secret', minReplicas: 1 })
// @ts-expect-error: verification can't be switched off
createLockClient({ store: 'rediss://localhost', tls: { rejectUnauthorized: false } })
createLockClient({} satisfies LockClientOptions)
// @ts-expect-error: no such option
createLockClient({ tll: 5_000 })
// @ts-expect-error: a number
createLockClient({ ttl: '10s' })
// @ts-expect-error: no such signal
createLockClient({ releaseOnSignal: ['SIGNONE'] })
// @ts-expect-error: not a URL
createLockClient(6379)

same<ReturnType<LockClient['inspect']>, Promise<LockInfo | null>>()
same<ReturnType<LockClient['stats']>, LockStats>()
same<LockInfo['leases'], LeaseInfo[]>()
same<LockInfo['waiters'], WaiterInfo[]>()
same<LockInfo['fence'], number | null>()
same<WaiterInfo['age'], Milliseconds>()
same<LockStats['localHandOffs'], number>()
same<LockStats['stores'], StoreHealth[]>()
same<StoreHealth['state'], 'closed' | 'open' | 'half-open' | 'refusing'>()
same<ReturnType<LockClient['diagnose']>, Promise<Diagnosis>>()
same<Diagnosis['findings'][number]['level'], 'info' | 'warning' | 'error'>()

export async function acquiring(signal: AbortSignal): Promise<void> {
  const options: AcquireOptions = { ttl: 1_000, wait: 0, signal, autoRenew: false, maxHold: 60_000 }
  const lease = await locks.acquire('key', options)
  same<typeof lease, Lease>()
  same<typeof lease.fence, number>()
  same<typeof lease.token, string>()
  same<typeof lease.signal, AbortSignal>()
  // @ts-expect-error: read only
  lease.fence = 7
  lease.assertHeld()
  await lease.renew()
  await lease.renew(20_000)
  same<Awaited<ReturnType<typeof lease.release>>, boolean>()

  const promise = locks.acquire('key')
  // @ts-expect-error: the await is missing
  await promise.release()
  // @ts-expect-error: the await is missing
  same<typeof promise.signal, AbortSignal>()
  // @ts-expect-error: the await is missing
  await using _disposed = locks.acquire('key')

  const maybe = await locks.tryAcquire('key', { ttl: 1_000 })
  same<typeof maybe, Lease | null>()
  // @ts-expect-error: may be null
  maybe.release()
  // @ts-expect-error: it never waits
  await locks.tryAcquire('key', { wait: 100 })
  // @ts-expect-error: it tries once
  await locks.tryAcquire('key', { retry: true })
  // @ts-expect-error: not a string
  await locks.acquire(7)
  // @ts-expect-error: no such option
  await locks.acquire('key', { timeout: 7 })
}

/** The compiler reports the wrong option at its place, and not the key of another overload. */
export function wrongOptions(): void {
  locks.acquire(
    'key',
    // @ts-expect-error: no such option
    { tll: 7 },
  )
  locks.acquire('key', {
    // @ts-expect-error: a number
    ttl: '10s',
  })
  locks.tryAcquire(
    ['a', 'b'],
    // @ts-expect-error: it never waits
    { wait: 7 },
  )
  locks.withLock(
    'key',
    // @ts-expect-error: no such option
    { tll: 7 },
    () => {},
  )
  locks.withLock(
    ['a', 'b'],
    // @ts-expect-error: a number
    { ttl: '10s' },
    () => {},
  )
}

export async function keysOfAllKinds(any: any, either: string | string[], one: 'a' | 'b'): Promise<void> {
  const ofAny = await locks.acquire(any)
  same<typeof ofAny, Lease>()
  const ofEither = await locks.acquire(either)
  same<typeof ofEither, Lease | MultiLease>()
  const ofOne = await locks.tryAcquire(one)
  same<typeof ofOne, Lease | null>()
  await locks.withLock(any, (lease) => lease.fence)
  // A call may name `T` alone, for one key and for several.
  const fence = await locks.withLock<number>('key', (lease) => lease.fence)
  same<typeof fence, number>()
  const nullable = await locks.withLock<string | null>('key', { ttl: 500 }, (lease) =>
    lease.isHeld ? lease.key : null,
  )
  same<typeof nullable, string | null>()
  const count = await locks.withLock<number>(['a', 'b'], (leases) => {
    same<typeof leases, MultiLease>()
    return leases.leases.length
  })
  same<typeof count, number>()
  const later = await locks.withLock<number>(['a', 'b'] as const, { ttl: 500 }, async (leases) => leases.leases.length)
  same<typeof later, number>()
  await locks.withLock<number>(any, (lease) => lease.fence)
  await locks.withLock<number>(either, undefined, (lease) => {
    same<typeof lease, Lease | MultiLease>()
    return lease.remaining
  })
  // @ts-expect-error: several keys have several fences
  await locks.withLock<number>(['a', 'b'], (leases) => leases.fence)
  // @ts-expect-error: one key has one fence
  await locks.withLock<number>('key', (lease) => lease.fences)
  // @ts-expect-error: the key, not a number
  await locks.withLock<number>('key', async (lease) => lease.key)
  // @ts-expect-error: a boolean, not a number
  await locks.withLock<number>(['a', 'b'], { ttl: 500 }, (leases) => leases.isHeld)
  // A call may name both type parameters.
  const both = await locks.withLock<number, string[]>(['a', 'b'], (leases) => leases.leases.length)
  same<typeof both, number>()
  await locks.withLock<number, string[]>(['a', 'b'], { ttl: 500 }, (leases) => leases.leases.length)
  const inferred = await locks.withLock(either, (lease) => lease.isHeld)
  same<typeof inferred, boolean>()
  const named = async (lease: MultiLease) => lease.fences
  await locks.withLock(['a', 'b'], named)
  // @ts-expect-error: one key has a Lease
  await locks.withLock('a', named)
}

/** Wrappers of a user, for one key and for any keys. */
export const fenceOf = async <K extends string>(key: K): Promise<number> => (await locks.acquire(key)).fence
export const heldOf = async <K extends Keys>(key: K): Promise<HeldOf<K>> => {
  const lease = await locks.acquire(key)
  lease.assertHeld()
  return lease
}

export async function failingFast(): Promise<void> {
  const failFast = createLockClient({ store: 'memory:fail-fast', failFast: true })
  await failFast.acquire('key', { failFast: false, retry: true })
  await failFast.withLock(['a', 'b'], { failFast: true }, () => {})
  await failFast.semaphore('few', 2).acquire({ failFast: undefined })
  await failFast.once('key', 'id', () => {}, { failFast: true })
  // @ts-expect-error: a boolean
  await failFast.acquire('key', { failFast: 1 })
  // @ts-expect-error: it always fails fast
  await failFast.tryAcquire('key', { failFast: true })
  // @ts-expect-error: a ticket would expire
  await failFast.adopt('ticket', { failFast: true })
}

export async function retrying(): Promise<void> {
  const retry: RetryOptions = { retries: Number.POSITIVE_INFINITY, minDelay: 1, maxDelay: 5, factor: 1.5, jitter: 0.1 }
  await locks.acquire('key', { retry, wait: 500 })
  await locks.withLock(['a', 'b'], { retry: true }, () => {})
  // @ts-expect-error: omit it instead
  await locks.acquire('key', { retry: false })
  // @ts-expect-error: no such option
  await locks.acquire('key', { retry: { delay: 5 } })
}

export async function severalKeys(): Promise<void> {
  const keys = ['a', 'b'] as const
  const lease = await locks.acquire(keys, { ttl: 1_000 })
  same<typeof lease, MultiLease>()
  same<typeof lease.fences, Readonly<Record<string, number>>>()
  same<typeof lease.leases, readonly Lease[]>()
  // @ts-expect-error: each key has its own fence
  lease.fence
  // @ts-expect-error: detach the leases one by one
  await lease.detach()
  // @ts-expect-error: read only
  lease.keys.push('c')
  lease.assertHeld()
  await lease.renew(20_000)
  same<Awaited<ReturnType<typeof lease.release>>, boolean>()
  const maybe = await locks.tryAcquire(['a'])
  same<typeof maybe, MultiLease | null>()
  const fences = await locks.withLock(['a', 'b'], async (leases) => leases.fences)
  same<typeof fences, Readonly<Record<string, number>>>()
  // @ts-expect-error: not all strings
  await locks.acquire(['a', 7])
  await using both = await locks.acquire(keys)
  both.assertHeld()
}

export async function shared(): Promise<void> {
  const semaphore = locks.semaphore('key', 3)
  same<typeof semaphore, Semaphore>()
  same<typeof semaphore.permits, number>()
  const lock: ReadWriteLock = locks.readWriteLock('key')
  const ways: Lock[] = [semaphore, lock.read, lock.write]
  for (const way of ways) {
    same<Awaited<ReturnType<typeof way.acquire>>, Lease>()
    same<Awaited<ReturnType<typeof way.tryAcquire>>, Lease | null>()
    same<number, Awaited<ReturnType<typeof fence>>>()
    const fence = () => way.withLock({ wait: 5 }, (lease) => lease.fence)
    const callback: LockCallback = (error, lease, done) => done(error ?? (lease?.isHeld ? null : new Error('lost')))
    same<typeof answer, void>()
    const answer = way.withLock({ ttl: 500 }, callback)
    way.withLock(callback)
    // @ts-expect-error: a lock has its key
    await way.acquire('key')
    // @ts-expect-error: it never waits
    await way.tryAcquire({ wait: 5 })
  }
  const named = await semaphore.withLock<number>((lease) => lease.fence)
  same<typeof named, number>()
  await lock.read.withLock<number>({ wait: 5 }, async (lease) => lease.fence)
  await locks.withAdopted<number>('ticket', (lease) => lease.fence)
  const outcome = await locks.once<number>('key', 'id', (lease) => lease.fence)
  same<typeof outcome.value, number | undefined>()
  // @ts-expect-error: the key, not a number
  await semaphore.withLock<number>((lease) => lease.key)
  // @ts-expect-error: no permits
  locks.semaphore('key')
}

export async function detaching(lease: Lease): Promise<void> {
  const ticket = await lease.detach(30_000)
  same<typeof ticket, string>()
  const adopted = await locks.adopt(ticket, { ttl: 5_000, autoRenew: true, maxHold: 60_000, signal: lease.signal })
  same<typeof adopted, Lease>()
  // @ts-expect-error: an adoption never waits
  await locks.adopt(ticket, { wait: 5_000 })
}

export function callbacks(): void {
  // The type of the callback gives the types of its parameters.
  const work: LockCallback = (error, lease, done) => {
    same<typeof error, Error | null>()
    same<typeof lease, Lease | undefined>()
    if (!lease) return done(error)
    done(null, (failure) => {
      same<typeof failure, Error | null>()
    })
    done((failure) => failure?.message)
    done()
    // @ts-expect-error: not an error
    done('failed')
  }
  const nothing = locks.withLock('key', work)
  same<typeof nothing, void>()
  locks.withLock('key', { ttl: 500 }, work)
  const both: LockCallback<MultiLease> = (error, leases) => {
    if (!error) same<typeof leases, MultiLease | undefined>()
  }
  locks.withLock(['a', 'b'], both)
  locks.withLock(['a', 'b'], undefined, both)
  // @ts-expect-error: one lease is not several
  locks.withLock('key', both)
  // The parameters may also have types of their own.
  locks.withLock('key', (error: Error | null, lease: Lease | undefined, done: Done) => done(error, () => lease?.fence))
  locks.withLock('key', (error: Error | null, lease?: Lease) => lease?.assertHeld() ?? error)
  // @ts-expect-error: one parameter too many
  locks.withLock('key', (_error: Error | null, _lease: Lease | undefined, _done: Done, _more: number) => {})
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

export async function operating(): Promise<void> {
  const { locks: held, complete } = await locks.list({ pattern: 'a*', limit: 10 })
  same<typeof complete, boolean>()
  for (const lock of held) same<typeof lock.key, string>()
  same<Awaited<ReturnType<typeof locks.forceRelease>>, boolean>()
  // @ts-expect-error: no such option
  await locks.list({ prefix: 'a' })
}

export async function disposal(): Promise<void> {
  await using client = createLockClient('memory:tests')
  await using lease = await client.acquire('key')
  lease.assertHeld()
}
