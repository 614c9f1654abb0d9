// A lease that somebody listens to: what is told of it, from the call for it to its end.

import type * as api from '../index'
import * as channels from './channels'
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

/** What is told of one lease. The first end that it comes to is the one that is told. */
export class Following {
  readonly #message: api.LeaseMessage
  readonly #since = performance.now()

  constructor(source: Source, mode: api.LockMode, { key, ttl, fence }: Followed) {
    this.#message = { ...source, key, mode, ttl, fence, renewals: 0 }
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
    message.held = performance.now() - this.#since
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
  const { ttl, wait, most, flags } = asked
  const all = typeof keys === 'string' ? [keys] : keys
  const mode = modeOf(most)
  const message: api.AcquireMessage = {
    ...source,
    method,
    key: all[0] as string,
    keys: all,
    mode,
    ttl,
    wait: Math.max(0, wait),
    tries: 1,
  }
  // Each renewal would wake this thread.
  const telling = channels.renewed.hasSubscribers ? { ...asked, flags: flags | Flag.ReportRenewals } : asked
  const again = () => {
    message.tries++
  }
  const ended = (answer: T) => {
    message.outcome = answer === null ? 'busy' : 'acquired'
    if (answer === null) return
    const leases = leasesOf(answer)
    const followings = leases.map((lease) => new Following(source, mode, lease))
    message.leases = followings.map((following) => following.message)
    message.fence = message.leases[0]?.fence as number
    for (const [i, lease] of leases.entries()) {
      channels.granted.publish((followings[i] as Following).message)
      lease[follow](followings[i] as Following)
    }
  }
  return channels.trace(channels.acquireTracing, message, () => call(telling, again), ended)
}

function leasesOf(answer: Followed | Several): readonly Followed[] {
  return 'leases' in answer ? answer.leases : [answer]
}

function modeOf(most: number): api.LockMode {
  if (most === Most.Exclusive) return 'exclusive'
  return most === Most.Readers ? 'read' : 'semaphore'
}
