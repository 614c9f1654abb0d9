// A lease that somebody listens to: what is told of it, from the call for it to its end.

import type * as api from '../index'
import * as channels from './channels'
import { now } from './clock'
import { Flag, Most } from './native'
import type { Asked } from './options'

/** Whose calls and leases they are. */
export type Source = api.ClientMessage

// A symbol, because the users of a lease must not see the method.
export const follow: unique symbol = Symbol('leasehold.follow')

/** A lease that can be followed. */
interface Followed {
  readonly key: string
  readonly ttl: number
  readonly fence: number
  [follow](following: Following): void
}

interface Several {
  readonly leases: readonly Followed[]
}

/** What a call for locks resolves with. */
type Answer = Followed | Several | null

// Classes, because an object that a constructor makes has room for what is filled in later: literals took seven times as long.

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

  constructor({ client, name, store }: Source, mode: api.LockMode, key: string, ttl: number, fence: number) {
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
  readonly mode: api.LockMode
  readonly ttl: number
  readonly wait: number
  tries = 1
  declare outcome?: api.AcquireOutcome
  declare duration?: number
  declare error?: Error
  declare reason?: Exclude<api.AcquireMessage['reason'], undefined>
  declare fence?: number
  declare leases?: readonly api.LeaseMessage[]
  /** Private, so that those who listen do not see it. */
  #trace: string | undefined

  constructor(
    { client, name, store }: Source,
    method: api.AcquireMessage['method'],
    keys: readonly string[],
    mode: api.LockMode,
    { ttl, wait }: Asked,
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

/** Says in which trace a call is that is told just now, before it begins; see {@link Asked.trace}. */
export const setTrace = AcquireMessage.setTrace

/** What is told of one lease. The first end that it comes to is the one that is told. */
export class Following {
  readonly #message: api.LeaseMessage
  readonly #since = now()

  constructor(source: Source, mode: api.LockMode, { key, ttl, fence }: Followed) {
    this.#message = new LeaseMessage(source, mode, key, ttl, fence)
  }

  get message(): api.LeaseMessage {
    return this.#message
  }

  /** It was renewed by itself. */
  renewed(): void {
    this.#message.renewals++
    channels.renewed.publish(this.#message)
  }

  /** Its holder has it no more, and wanted that. */
  given(outcome: 'released' | 'detached'): void {
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
    return channels.trace(channels.renewTracing, message, call, () => {
      message.outcome = 'renewed'
    })
  }

  release(call: () => Promise<boolean>): Promise<boolean> {
    const message: api.ReleaseMessage = { lease: this.#message }
    const released = () => {
      const called = call()
      this.given('released')
      return called
    }
    return channels.trace(channels.releaseTracing, message, released, (given) => {
      message.outcome = given ? 'released' : 'gone'
    })
  }
}

/** A call for locks, as it is told. */
export interface Calling {
  readonly source: Source
  readonly method: api.AcquireMessage['method']
  readonly keys: string | readonly string[]
  readonly asked: Asked
}

/**
 * What `call` resolves with, told on the way, its leases followed. `call` is given what to ask for instead, and what is to be
 * called before each further try.
 */
export function followed<T extends Answer>(
  { source, method, keys, asked }: Calling,
  call: (asked: Asked, again: () => void) => Promise<T>,
): Promise<T> {
  const mode = modeOf(asked.most)
  const message = new AcquireMessage(source, method, typeof keys === 'string' ? [keys] : keys, mode, asked)
  // Each renewal would wake this thread.
  const telling = channels.renewed.hasSubscribers ? { ...asked, flags: asked.flags | Flag.ReportRenewals } : asked
  const again = () => {
    message.tries++
  }
  const ended = (answer: T) => {
    message.outcome = answer === null ? 'busy' : 'acquired'
    if (answer === null) return
    const leases = leasesOf(answer)
    message.fence = leases[0]?.fence as number
    const told: api.LeaseMessage[] = []
    message.leases = told
    for (const lease of leases) {
      const following = new Following(source, mode, lease)
      told.push(following.message)
      channels.granted.publish(following.message)
      lease[follow](following)
    }
  }
  const begin = () => {
    const trace = AcquireMessage.traceOf(message)
    return call(trace === undefined ? telling : { ...telling, trace }, again)
  }
  return channels.trace(channels.acquireTracing, message, begin, ended)
}

function leasesOf(answer: Followed | Several): readonly Followed[] {
  return 'leases' in answer ? answer.leases : [answer]
}

function modeOf(most: number): api.LockMode {
  if (most === Most.Exclusive) return 'exclusive'
  return most === Most.Readers ? 'read' : 'semaphore'
}
