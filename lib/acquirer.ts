// The three ways to a lock, for whoever has locks to give: clients, semaphores, read/write locks.

import type * as api from '../index'
import { badType, checkFunction, checkKey, checkKeys, firstOf } from './arguments'
import { isHeard } from './channels'
import * as errors from './errors'
import { followed, type Source } from './following'
import { Lease, type Observer, type Owner } from './lease'
import { MultiLease } from './multi'
import { Flag, withFailFast } from './native'
import { type Asked, parseAcquire, parseTry } from './options'
import type { Outage } from './outage'
import { type Pauses, trying } from './retry'
import { type Callback, callWith, runWith, type Work } from './section'
import type { Sections } from './sections'
import type { Checker } from './side-keys'
import type { Ticket } from './ticket'

/** The client that an acquirer asks for. */
export interface Host extends Owner {
  /** Set by the client. See {@link Owner.isDrained}. */
  isDrained: boolean
  /** Functions that the client calls when it begins to close. */
  readonly pauses: Pauses
  readonly sections: Sections
  readonly outage: Outage
  /** The names of the schedules that it has. */
  readonly schedules: Set<string>
  /** Who it is, to those who listen. */
  readonly source: Source
  /** Returns whether the client has a listener to its errors. */
  hearsErrors(): boolean
  /** Throws if the client was closed. */
  checkOpen(key?: string): void
  /** Throws if a key, with the client's prefix, names a side key. */
  readonly checkNames: Checker
}

/** How many parameters a callback declares: error, lease and done. */
const CALLBACK = 3

/** What tryAcquire() does not know, but its sister does. */
const NOT_HERE = {
  wait: 'tryAcquire() never waits, acquire() does',
  retry: 'tryAcquire() tries once, acquire() tries again',
  failFast: 'tryAcquire() always fails fast',
} as const

type Held = Lease | MultiLease
type Options = api.AcquireOptions

export class Acquirer {
  readonly #host: Host
  readonly defaults: Asked
  readonly #tryDefaults: Asked
  readonly #sectionDefaults: Asked
  readonly #observer: Observer | undefined

  constructor(host: Host, defaults: Asked, observer?: Observer) {
    this.#host = host
    this.#observer = observer
    this.defaults = defaults
    this.#tryDefaults = { ...defaults, wait: -1, flags: withFailFast(defaults.flags, true) }
    this.#sectionDefaults = { ...defaults, flags: defaults.flags | Flag.Section }
  }

  /** Throws if `given` can't be the key of a lock. */
  checkKey(given: unknown): void {
    checkKey(given)
    this.#host.checkNames(given)
  }

  /** Returns `given` as {@link checkKeys} does. Throws if a key can't be the key of a lock. */
  #checkKeys(given: unknown): string | readonly string[] {
    const keys = checkKeys(given)
    this.#host.checkNames(keys)
    return keys
  }

  /** The same for locks that are held by so many at a time; see `Most`. */
  shared(most: number): Acquirer {
    return new Acquirer(this.#host, { ...this.defaults, most })
  }

  /**
   * Returns an acquirer of leases that outlive this process; see `Flag`. The acquirer calls
   * `renewed` after each renewal of a lease of one lock.
   */
  outliving(renewed?: () => void): Acquirer {
    const reports = renewed === undefined ? 0 : Flag.ReportRenewals
    const flags = this.defaults.flags | Flag.OutlivesProcess | reports
    const observer = renewed && { renewed, released: () => {}, lost: () => {} }
    return new Acquirer(this.#host, { ...this.defaults, flags }, observer)
  }

  /**
   * Acquires one lock with options that were checked before. Resolves with `null` if another client
   * holds it and `asked` does not wait. A worker passes an observer of the lease.
   */
  request(key: string, asked: Asked, observer?: Observer): Promise<Lease | null> {
    const host = this.#host
    host.checkNames(key)
    host.checkOpen(key)
    if (!isHeard()) return Lease.request(host, key, asked, observer)
    const calling = {
      source: host.source,
      method: observer === undefined ? 'once' : 'worker',
      keys: key,
      asked,
    } as const
    return followed(calling, (telling) => Lease.request(host, key, telling, observer))
  }

  adopt(ticket: Ticket, asked: Asked): Promise<Lease> {
    const host = this.#host
    host.checkNames(ticket.key)
    host.checkOpen(ticket.key)
    if (!isHeard()) return Lease.adopt(host, ticket, asked)
    const calling = { source: host.source, method: 'adopt', keys: ticket.key, asked } as const
    return followed(calling, (telling) => Lease.adopt(host, ticket, telling))
  }

  /** Adopts the lease that was detached into `ticket`, and runs `work` under it as a section. */
  withAdopted<T>(ticket: Ticket, asked: Asked, work: Work<Lease, T>): Promise<T> {
    const section = { ...asked, flags: asked.flags | Flag.Section }
    return runWith(this.#host, async () => this.adopt(ticket, section), work)
  }

  acquire(key: string, options?: Options): Promise<Lease>
  acquire(key: string | readonly string[], options?: Options): Promise<Held>
  acquire(key: string | readonly string[], options?: Options): Promise<Held> {
    return this.#ask(key, options, this.defaults)
  }

  #ask(key: string | readonly string[], options: Options | undefined, defaults: Asked): Promise<Held> {
    try {
      const keys = this.#checkKeys(key)
      const asked = options === undefined ? defaults : parseAcquire(options, defaults)
      if (!isHeard()) return this.#acquire(keys, asked)
      const calling = { source: this.#host.source, method: 'acquire', keys, asked } as const
      return followed(calling, (telling, again) => this.#acquire(keys, telling, again))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #acquire(keys: string | readonly string[], asked: Asked, again?: () => void): Promise<Held> {
    const { retry, wait, signal, flags } = asked
    // Only a request that does not wait resolves with null.
    if (retry === undefined) return this.#request(keys, asked) as Promise<Held>
    const { pauses, timeouts } = this.#host
    const once = { ...asked, wait: -1 }
    /** The key that was held at the last try. */
    let key = firstOf(keys)
    const attempt = async () =>
      this.#request(keys, once, (busy) => {
        key = busy
      })
    const gaveUp = async (tries: number, waited: number) => {
      // Do not ask the store for a call that did not wait: callers often repeat it at once.
      const contention = tries > 1 ? await timeouts.of(key, waited, signal) : timeouts.guess(false)
      return errors.gaveUp(key, tries, typeof keys === 'string' ? 1 : keys.length, contention)
    }
    const outage = (flags & Flag.FailFast) === 0 ? undefined : this.#host.outage
    return trying({ keys, retry, wait, signal, pauses, outage, again, attempt, gaveUp })
  }

  tryAcquire(key: string, options?: api.TryAcquireOptions): Promise<Lease | null>
  tryAcquire(key: string | readonly string[], options?: api.TryAcquireOptions): Promise<Held | null>
  tryAcquire(key: string | readonly string[], options?: api.TryAcquireOptions): Promise<Held | null> {
    try {
      const keys = this.#checkKeys(key)
      const asked = options === undefined ? this.#tryDefaults : parseTry(options, this.#tryDefaults, NOT_HERE)
      if (!isHeard()) return this.#request(keys, asked)
      const calling = { source: this.#host.source, method: 'tryAcquire', keys, asked } as const
      return followed(calling, (telling) => this.#request(keys, telling))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #request(keys: string | readonly string[], asked: Asked, busy?: (key: string) => void): Promise<Held | null> {
    const host = this.#host
    host.checkOpen(firstOf(keys))
    if (typeof keys === 'string') return Lease.request(host, keys, asked, this.#observer)
    return MultiLease.request(host, keys, asked, busy)
  }

  /**
   * Runs both forms of withLock(). If the work declares a `done` parameter, it is called with a
   * callback. The types in index.d.ts tell what the arguments are.
   */
  withLock(key: string | readonly string[], second: unknown, third?: unknown): Promise<unknown> | undefined {
    // Of one that is neither, the message has to be about a function.
    const isAlone = third === undefined && !isPlain(second)
    const [options, work] = isAlone ? [undefined, second] : [second, third]
    try {
      if (typeof key === 'function') {
        throw badType('key', 'of type string, or an array of strings', key, 'a function: the key comes before it')
      }
      if (typeof second === 'function' && isPlain(work)) {
        throw badType('fn', 'of type function', work, 'options: they come before the function')
      }
      checkFunction('fn', work)
    } catch (error) {
      return Promise.reject(error)
    }
    const acquire = () => this.#ask(key, options as Options | undefined, this.#sectionDefaults)
    if ((work as Work<Held, unknown>).length < CALLBACK)
      return runWith(this.#host, acquire, work as Work<Held, unknown>)
    callWith(this.#host, acquire, work as Callback<Held>)
    return undefined
  }
}

/** Whether it is an object as options are written. */
function isPlain(given: unknown): boolean {
  if (typeof given !== 'object' || given === null) return false
  const prototype: unknown = Object.getPrototypeOf(given)
  return prototype === Object.prototype || prototype === null
}
