// The channels of Node's diagnostics_channel, and the publication of a call on five of them.
// types/channels.d.ts says which message goes where. Without listeners, the only cost is
// hasListeners().

import { type Channel, channel } from 'node:diagnostics_channel'
import type * as api from '../../index'
import { now } from '../util/clock'
import {
  LockAbortedError,
  LockClosedError,
  LockError,
  LockLostError,
  LockTimeoutError,
  QuorumError,
  StoreUnavailableError,
} from './errors'

/** A channel whose messages have a type. */
interface Typed<M> extends Pick<Channel, 'hasSubscribers'> {
  publish(message: M): void
  subscribe(listener: (message: M) => void): void
  unsubscribe(listener: (message: M) => void): boolean
}

function open<M>(name: string): Typed<M> {
  return channel(name) as unknown as Typed<M>
}

/**
 * Returns the channels of `tracingChannel()`, which has no `hasSubscribers` in earlier versions of
 * Node.
 */
function openTracing<M>(name: string) {
  const part = (event: string) => open<M>(`tracing:leasehold:${name}:${event}`)
  const start = part('start') as Typed<M> & Pick<Channel, 'runStores'>
  return {
    start,
    end: part('end'),
    asyncStart: part('asyncStart'),
    asyncEnd: part('asyncEnd'),
    error: part('error'),
  }
}

type Tracing<M> = ReturnType<typeof openTracing<M>>

export const acquireTracing = openTracing<api.AcquireMessage>('acquire')
export const renewTracing = openTracing<api.RenewMessage>('renew')
export const releaseTracing = openTracing<api.ReleaseMessage>('release')
export const granted = open<api.LeaseMessage>('leasehold:granted')
export const renewed = open<api.LeaseMessage>('leasehold:renewed')
export const released = open<api.LeaseMessage>('leasehold:released')
export const lost = open<api.LeaseMessage>('leasehold:lost')
export const breaker = open<api.BreakerMessage>('leasehold:breaker')
export const worker = open<api.WorkerMessage>('leasehold:worker')

const [a, b, c] = [acquireTracing, renewTracing, releaseTracing]

/**
 * Returns whether any channel of calls and leases has listeners. Runs once for each call, in a few
 * nanoseconds; a loop would take fifty times as long.
 */
export function hasListeners(): boolean {
  return (
    granted.hasSubscribers ||
    released.hasSubscribers ||
    lost.hasSubscribers ||
    renewed.hasSubscribers ||
    a.start.hasSubscribers ||
    a.end.hasSubscribers ||
    a.asyncStart.hasSubscribers ||
    a.asyncEnd.hasSubscribers ||
    a.error.hasSubscribers ||
    b.start.hasSubscribers ||
    b.end.hasSubscribers ||
    b.asyncStart.hasSubscribers ||
    b.asyncEnd.hasSubscribers ||
    b.error.hasSubscribers ||
    c.start.hasSubscribers ||
    c.end.hasSubscribers ||
    c.asyncStart.hasSubscribers ||
    c.asyncEnd.hasSubscribers ||
    c.error.hasSubscribers
  )
}

/**
 * Returns the promise of `call`, and publishes its message, in the caller's async context. `ended`
 * adds the outcome to the message. If the call throws, the promise rejects.
 */
export function tracePromise<M extends api.Ending<string>, T>(
  tracing: Tracing<M>,
  message: M,
  call: () => Promise<T>,
  ended: (value: T) => void,
): Promise<T> {
  const began = now()
  const settled = () => {
    tracing.asyncStart.publish(message)
    tracing.asyncEnd.publish(message)
  }
  const succeeded = (value: T): T => {
    message.duration = now() - began
    ended(value)
    settled()
    return value
  }
  const failed = (error: unknown): never => {
    message.duration = now() - began
    message.error = error as Error
    message.outcome = outcomeOf(error)
    const reason = reasonOf(error)
    if (reason !== undefined) message.reason = reason
    tracing.error.publish(message)
    settled()
    throw error
  }
  return tracing.start.runStores(message, () => {
    const called = attempt(call).then(succeeded, failed)
    tracing.end.publish(message)
    return called
  })
}

/** Calls at once. An async function would settle a microtask later. */
function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call()
  } catch (error) {
    return Promise.reject(error)
  }
}

function outcomeOf(error: unknown): api.FailureOutcome {
  if (error instanceof LockTimeoutError) return 'timeout'
  if (error instanceof LockAbortedError) return 'aborted'
  if (error instanceof LockLostError) return 'lost'
  if (error instanceof StoreUnavailableError || error instanceof QuorumError) return 'unavailable'
  if (error instanceof LockClosedError) return 'closed'
  return error instanceof LockError ? 'released' : 'failed'
}

function reasonOf(error: unknown): api.AcquireMessage['reason'] {
  if (error instanceof QuorumError) return 'quorum'
  if (error instanceof LockLostError || error instanceof StoreUnavailableError) return error.reason
  return undefined
}
