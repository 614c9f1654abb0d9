// Traces calls for locks and their leases: publishes messages from the call to the end of the
// lease.

import type * as api from '../../index'
import { Flag, Most } from '../native/protocol'
import { now } from '../util/clock'
import * as channels from './channels'

/** Identifies a client in its messages. */
export type ClientIdentity = api.ClientMessage

// Symbols, because the users of a lease must not see the members.
export const attachTrace: unique symbol = Symbol('leasehold.attachTrace')
export const tracedMost: unique symbol = Symbol('leasehold.tracedMost')

/** A lease that can be traced. */
interface TracedLease {
  readonly key: string
  readonly ttl: number
  readonly fence: number
  /** See {@link Most}. After an adoption, it may differ from that of the request. */
  readonly [tracedMost]: number
  [attachTrace](trace: LeaseTrace): void
}

interface TracedLeases {
  readonly leases: readonly TracedLease[]
}

/** The parts of a request for a lock that messages show, or that tracing changes. */
interface TracedRequest {
  readonly ttl: number
  readonly wait: number
  readonly most: number
  readonly flags: number
  readonly trace: string | undefined
}

/** What a call for locks resolves with. */
type CallResult = TracedLease | TracedLeases | null

// The messages are classes, because objects of a constructor have room for later fields. Literals
// took seven times as long.

class LeaseMessage implements api.LeaseMessage {
  readonly client: api.LockClient
  readonly name: string
  readonly store: api.StoreIdentity
  readonly key: string
  readonly mode: api.LockMode
  readonly ttl: number
  readonly fence: number
  renewals = 0
  declare outcome?: 'released' | 'detached' | 'lost'
  declare held?: number
  declare error?: api.LockLostError
  declare reason?: api.LossReason

  constructor({ client, name, store }: ClientIdentity, mode: api.LockMode, key: string, ttl: number, fence: number) {
    this.client = client
    this.name = name
    this.store = store
    this.key = key
    this.mode = mode
    this.ttl = ttl
    this.fence = fence
  }
}

class AcquireMessage implements api.AcquireMessage {
  readonly client: api.LockClient
  readonly name: string
  readonly store: api.StoreIdentity
  readonly method: api.AcquireMessage['method']
  readonly key: string
  readonly keys: readonly string[]
  mode: api.LockMode
  readonly ttl: number
  readonly wait: number
  tries = 1
  declare outcome?: api.AcquireOutcome
  declare duration?: number
  declare error?: Error
  declare reason?: Exclude<api.AcquireMessage['reason'], undefined>
  declare fence?: number
  declare leases?: readonly api.LeaseMessage[]
  /** Private, so that listeners do not see it. */
  #trace: string | undefined

  constructor(
    { client, name, store }: ClientIdentity,
    method: api.AcquireMessage['method'],
    keys: readonly string[],
    mode: api.LockMode,
    { ttl, wait }: TracedRequest,
  ) {
    this.client = client
    this.name = name
    this.store = store
    this.method = method
    this.key = keys[0] as string
    this.keys = keys
    this.mode = mode
    this.ttl = ttl
    this.wait = Math.max(0, wait)
  }

  static setTrace(message: api.AcquireMessage, trace: string): void {
    if (#trace in message) message.#trace = trace
  }

  static traceOf(message: AcquireMessage): string | undefined {
    return message.#trace
  }
}

/**
 * Sets the trace of a call. Works only while the start of the call is being published; see
 * `LockRequest.trace`.
 */
export const setTrace = AcquireMessage.setTrace

/** Publishes the events of one lease. Only the first end of the lease counts. */
export class LeaseTrace {
  readonly #message: api.LeaseMessage
  readonly #since = now()

  constructor(identity: ClientIdentity, { key, ttl, fence, [tracedMost]: most }: TracedLease) {
    this.#message = new LeaseMessage(identity, modeOf(most), key, ttl, fence)
  }

  get message(): api.LeaseMessage {
    return this.#message
  }

  /** Reports an automatic renewal. */
  renewed(): void {
    this.#message.renewals++
    channels.renewed.publish(this.#message)
  }

  /** Reports that the holder has released or detached the lease. */
  endedByHolder(outcome: 'released' | 'detached'): void {
    if (this.#end(outcome)) channels.released.publish(this.#message)
  }

  lost(error: api.LockLostError): void {
    if (!this.#end('lost')) return
    this.#message.error = error
    this.#message.reason = error.reason
    channels.lost.publish(this.#message)
  }

  #end(outcome: 'released' | 'detached' | 'lost'): boolean {
    const message = this.#message
    if (message.outcome !== undefined) return false
    message.outcome = outcome
    message.held = now() - this.#since
    return true
  }

  renew(ttl: number, call: () => Promise<void>): Promise<void> {
    const message: api.RenewMessage = { lease: this.#message, ttl }
    return channels.tracePromise(channels.renewTracing, message, call, () => {
      message.outcome = 'renewed'
    })
  }

  release(call: () => Promise<boolean>): Promise<boolean> {
    const message: api.ReleaseMessage = { lease: this.#message }
    const released = () => {
      const called = call()
      this.endedByHolder('released')
      return called
    }
    return channels.tracePromise(channels.releaseTracing, message, released, (given) => {
      message.outcome = given ? 'released' : 'gone'
    })
  }
}

/** A call for locks. */
export interface TracedCall<R extends TracedRequest> {
  readonly identity: ClientIdentity
  readonly method: api.AcquireMessage['method']
  readonly keys: string | readonly string[]
  readonly request: R
}

/**
 * Runs `call` and publishes its messages and those of its leases. Passes to `call` the request to
 * make, and a function to call before each further try.
 */
export function traced<T extends CallResult, R extends TracedRequest>(
  { identity, method, keys, request }: TracedCall<R>,
  call: (request: R, onRetry: () => void) => Promise<T>,
): Promise<T> {
  const mode = modeOf(request.most)
  const message = new AcquireMessage(identity, method, typeof keys === 'string' ? [keys] : keys, mode, request)
  // Ask for reports of renewals only if they have listeners: each report wakes this thread.
  const tracedRequest = channels.renewed.hasSubscribers
    ? { ...request, flags: request.flags | Flag.ReportRenewals }
    : request
  const onRetry = () => {
    message.tries++
  }
  const ended = (answer: T) => {
    message.outcome = answer === null ? 'busy' : 'acquired'
    if (answer === null) return
    const leases = leasesOf(answer)
    message.fence = leases[0]?.fence as number
    // The ticket of an adoption may name another mode than the store.
    message.mode = modeOf(leases[0]?.[tracedMost] as number)
    const told: api.LeaseMessage[] = []
    message.leases = told
    for (const lease of leases) {
      const trace = new LeaseTrace(identity, lease)
      told.push(trace.message)
      channels.granted.publish(trace.message)
      lease[attachTrace](trace)
    }
  }
  const begin = () => {
    const trace = AcquireMessage.traceOf(message)
    return call(trace === undefined ? tracedRequest : { ...tracedRequest, trace }, onRetry)
  }
  return channels.tracePromise(channels.acquireTracing, message, begin, ended)
}

function leasesOf(answer: TracedLease | TracedLeases): readonly TracedLease[] {
  return 'leases' in answer ? answer.leases : [answer]
}

function modeOf(most: number): api.LockMode {
  if (most === Most.Exclusive) return 'exclusive'
  return most === Most.Readers ? 'read' : 'semaphore'
}
