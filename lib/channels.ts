// What the library tells on Node's diagnostics_channel: the channels, and how a call is told on five of them. See
// types/channels.d.ts for what is told where. As long as nobody listens it costs isHeard(), and nothing is made.

import { type Channel, channel } from 'node:diagnostics_channel'
import type * as api from '../index'
import { now } from './clock'
import * as errors from './errors'

/** One channel, of which the messages are known. */
interface Typed<M> extends Pick<Channel, 'hasSubscribers'> {
  publish(message: M): void
  subscribe(listener: (message: M) => void): void
  unsubscribe(listener: (message: M) => void): boolean
}

function open<M>(name: string): Typed<M> {
  return channel(name) as unknown as Typed<M>
}

/** Those that `tracingChannel()` would give; it says whether somebody listens to them in later versions of Node only. */
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
 * Whether anybody listens to what becomes of a call for a lock and its lease. Asked once for each call; written out, because
 * a loop takes fifty times as long as this, which is a few nanoseconds.
 */
export function isHeard(): boolean {
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
 * What `call` returns, told on the way. `ended` writes into the message what came of it. All that is told is told in the
 * caller's async context, and what the call throws is told and returned as a rejection.
 */
export function trace<M extends api.Ending<string>, T>(
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

/** Called at once; an async function would take another turn to settle. */
function attempt<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call()
  } catch (error) {
    return Promise.reject(error)
  }
}

function outcomeOf(error: unknown): api.FailureOutcome {
  if (error instanceof errors.LockTimeoutError) return 'timeout'
  if (error instanceof errors.LockAbortedError) return 'aborted'
  if (error instanceof errors.LockLostError) return 'lost'
  if (error instanceof errors.StoreUnavailableError || error instanceof errors.QuorumError) return 'unavailable'
  if (error instanceof errors.LockClosedError) return 'closed'
  return error instanceof errors.LockError ? 'released' : 'failed'
}

function reasonOf(error: unknown): api.AcquireMessage['reason'] {
  if (error instanceof errors.QuorumError) return 'quorum'
  if (error instanceof errors.LockLostError || error instanceof errors.StoreUnavailableError) return error.reason
  return undefined
}
