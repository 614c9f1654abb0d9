// A duration has a unit as its type, and can be used like any other number.

import {
  type AcquireOptions,
  createLockClient,
  createLockWorker,
  type Lease,
  type LockInfo,
  type LockStats,
  type Milliseconds,
  type RetryOptions,
  type Seconds,
} from 'leasehold'
import type { Refusal } from 'leasehold/express'
import { same } from './equal'

const locks = createLockClient('memory:types')

/** Defines durations as an enum, as a program may. */
enum Limit {
  short = 500,
  long = 60_000,
}
export async function given(
  some: number,
  limit: Limit,
  either: 500 | 1_000,
  numbers: Record<'ttl', number>,
): Promise<void> {
  const options: AcquireOptions = { ttl: some, wait: Limit.short, maxHold: limit }
  await locks.acquire('key', options)
  await locks.acquire('key', { wait: either, ...numbers })
  const lease = await locks.acquire('key', { ttl: some * 2, retry: { minDelay: either, maxDelay: Limit.long } })
  await lease.renew(some)
  createLockWorker({ key: 'key', startWork() {}, retryInterval: limit, stopTimeout: some })
  let longest: Milliseconds = some
  longest = Limit.long
  longest += 5
  longest++
  await lease.detach(longest)
  const wait = (time: Milliseconds) => new Promise((resolve) => setTimeout(resolve, time))
  const mine: (time: number) => Promise<unknown> = wait
  const theirs: (time: Milliseconds) => unknown = (time: number) => mine(time)
  theirs(lease.remaining)
  // @ts-expect-error: a number
  await locks.acquire('key', { ttl: '500' })
  // @ts-expect-error: a number
  await locks.acquire('key', { ttl: { ms: 500 } })
  // @ts-expect-error: a number
  await locks.acquire('key', { ttl: 500n })
}

export function received(lease: Lease, info: LockInfo, stats: LockStats, refusal: Refusal): void {
  const half: number = lease.remaining / 2
  const sums: number[] = [-half, lease.ttl - lease.remaining, 2 ** stats.waitMs, lease.ttl, Math.max(lease.ttl, 5)]
  const mean: number = stats.waitMs / (stats.waited || 1)
  const left: number = info.remaining ?? 0
  const soon: boolean = lease.remaining < 500 || lease.remaining === 0
  const text: string = `${lease.remaining} ms, ${info.remaining?.toFixed()}, ${refusal.retryAfter.toFixed()} s`
  const byTime: Record<number, string> = { 500: 'short' }
  const named: string | undefined = byTime[lease.ttl]
  if (typeof info.remaining === 'number') setTimeout(() => {}, info.remaining)
  const seconds: Seconds = refusal.retryAfter
  same<typeof info.remaining, Milliseconds | null>()
  console.log(sums, mean, left, soon, text, named, seconds, JSON.stringify(info))
}

/** For generic types, a duration is a number and not an object. */
type IsObject<T> = T extends object ? true : false
same<IsObject<Milliseconds>, false>()
same<Milliseconds extends number ? true : false, true>()
same<number extends Milliseconds ? true : false, true>()
type DeepReadonly<T> = { readonly [K in keyof T]: DeepReadonly<T[K]> }
type DeepPartial<T> = { [K in keyof T]?: DeepPartial<T[K]> }
type Jsonified<T> = T extends string | number | boolean | null ? T : { [K in keyof T]: Jsonified<T[K]> }
same<DeepReadonly<LockStats>['waitMs'], Milliseconds>()
same<Jsonified<LockInfo>['remaining'], Milliseconds | null>()
export const sumOf = (stats: DeepReadonly<LockStats>): number => stats.waitMs + stats.longestWaitMs
export const withDefaults = (options: DeepPartial<AcquireOptions>): number =>
  (options.ttl ?? 500) + ((options.retry as DeepPartial<RetryOptions> | undefined)?.minDelay ?? 5)
type Times = Record<'ttl' | 'wait', Milliseconds>
export const times: Required<Pick<AcquireOptions, keyof Times>> = {
  ttl: 500,
  wait: Number.POSITIVE_INFINITY,
} satisfies Times
export const numbers = (times: Times): Partial<Record<keyof Times, number>> => times

// A unit is a type and not a value.
// @ts-expect-error: no such export
import('leasehold').then(({ Milliseconds }) => Milliseconds)
// @ts-expect-error: no such export
import('leasehold').then(({ MillisecondsUnit }) => MillisecondsUnit)
