// acquire(), tryAcquire() and withLock(), for clients, semaphores and read/write locks.

import type * as api from '../../index'
import { hasListeners } from '../diagnostics/channels'
import { gaveUpError } from '../diagnostics/errors'
import { traced } from '../diagnostics/tracing'
import { Flag, NO_WAIT } from '../native/protocol'
import { badType, checkFunction, checkKey, checkKeys, firstOf, nameCall } from '../util/arguments'
import { parseAcquire, parseTry } from './acquire-options'
import { adopt } from './adoption'
import type { ClientContext } from './client-context'
import { withFailFast } from './fail-fast'
import { Lease } from './lease'
import type { LeaseObserver } from './lease-owner'
import { beginOf, type LockRequest } from './lock-request'
import { MultiLease } from './multi-lease'
import { checkNoOnceKey } from './once-key'
import { retrying } from './retry'
import { warnOfSuspiciousKey } from './suspicious-key'
import type { Ticket } from './ticket'
import { runCallbackSection, runSection, type SectionCallback, type SectionFunction } from './with-lock'

/** The number of parameters that a callback declares: error, lease and done. */
const CALLBACK = 3

/** The options of acquire() that tryAcquire() does not take, and why. */
const NOT_HERE = {
  wait: 'tryAcquire() never waits, acquire() does',
  retry: 'tryAcquire() tries once, acquire() tries again',
  failFast: 'tryAcquire() always fails fast',
} as const

type AnyLease = Lease | MultiLease
type Options = api.AcquireOptions

export class Acquirer {
  readonly #context: ClientContext
  readonly defaults: LockRequest
  readonly #tryDefaults: LockRequest
  readonly #sectionDefaults: LockRequest
  readonly #observer: LeaseObserver | undefined

  constructor(context: ClientContext, defaults: LockRequest, observer?: LeaseObserver) {
    this.#context = context
    this.#observer = observer
    this.defaults = defaults
    this.#tryDefaults = { ...defaults, wait: NO_WAIT, flags: withFailFast(defaults.flags, true) }
    this.#sectionDefaults = { ...defaults, flags: defaults.flags | Flag.Section }
  }

  /** Throws if `given` can't be the key of a lock. */
  checkKey(given: unknown): void {
    checkKey(given)
    this.#context.checkNames(given)
  }

  /**
   * Returns `given` as {@link checkKeys} does. Throws if a key can't be the key of a lock, or names
   * the lock of an id of once(). Warns of keys that look like a mistake.
   */
  #checkKeys(given: unknown): string | readonly string[] {
    const keys = checkKeys(given)
    checkNoOnceKey(keys)
    this.#context.checkNames(keys)
    if (typeof keys === 'string') warnOfSuspiciousKey(keys)
    else keys.forEach(warnOfSuspiciousKey)
    return keys
  }

  /** Returns an acquirer of locks that `most` clients may hold at a time; see `Most`. */
  withMost(most: number): Acquirer {
    return new Acquirer(this.#context, { ...this.defaults, most })
  }

  /**
   * Returns an acquirer of leases that outlive this process; see `Flag`. It calls `renewed` each
   * time the engine has renewed a lease, except for leases of several keys.
   */
  outliving(renewed?: () => void): Acquirer {
    const reports = renewed === undefined ? 0 : Flag.ReportRenewals
    const flags = this.defaults.flags | Flag.OutlivesProcess | reports
    const observer = renewed && { renewed, released: () => {}, lost: () => {} }
    return new Acquirer(this.#context, { ...this.defaults, flags }, observer)
  }

  /**
   * Acquires one lock with options that were checked before. Resolves with `null` if another client
   * holds it and `request` does not wait. A worker passes an observer of the lease.
   */
  request(key: string, request: LockRequest, observer?: LeaseObserver): Promise<Lease | null> {
    const context = this.#context
    context.checkNames(key)
    context.checkOpen(key)
    if (!hasListeners()) return Lease.request(context, key, request, observer)
    const call = {
      identity: context.identity,
      method: observer === undefined ? 'once' : 'worker',
      keys: key,
      request,
    } as const
    return traced(call, (tracedRequest) => Lease.request(context, key, tracedRequest, observer))
  }

  adopt(ticket: Ticket, request: LockRequest): Promise<Lease> {
    const context = this.#context
    context.checkNames(ticket.key)
    context.checkOpen(ticket.key)
    if (!hasListeners()) return adopt(context, ticket, request)
    const call = { identity: context.identity, method: 'adopt', keys: ticket.key, request } as const
    return traced(call, (tracedRequest) => adopt(context, ticket, tracedRequest))
  }

  /** Adopts the lease that was detached into `ticket`, and runs `work` under it as a section. */
  withAdopted<T>(ticket: Ticket, request: LockRequest, work: SectionFunction<Lease, T>): Promise<T> {
    const section = { ...request, flags: request.flags | Flag.Section }
    return runSection(this.#context, async () => this.adopt(ticket, section), work)
  }

  acquire(key: string, options?: Options): Promise<Lease>
  acquire(key: string | readonly string[], options?: Options): Promise<AnyLease>
  acquire(key: string | readonly string[], options?: Options): Promise<AnyLease> {
    return this.#ask('acquire', key, options, this.defaults)
  }

  #ask(
    caller: string,
    key: string | readonly string[],
    options: Options | undefined,
    defaults: LockRequest,
  ): Promise<AnyLease> {
    try {
      const keys = this.#checkKeys(key)
      const request = options === undefined ? defaults : parseAcquire(options, defaults)
      if (!hasListeners()) return this.#acquire(keys, request)
      const call = { identity: this.#context.identity, method: 'acquire', keys, request } as const
      return traced(call, (tracedRequest, onRetry) => this.#acquire(keys, tracedRequest, onRetry))
    } catch (error) {
      return Promise.reject(nameCall(caller, error))
    }
  }

  #acquire(keys: string | readonly string[], request: LockRequest, onRetry?: () => void): Promise<AnyLease> {
    const { retry, wait, signal, flags } = request
    // Only a request that does not wait resolves with null.
    if (retry === undefined) return this.#request(keys, request) as Promise<AnyLease>
    const { pauses, timeouts } = this.#context
    const once = { ...request, wait: NO_WAIT, began: beginOf(signal) }
    /** The key that was held at the last try. */
    let key = firstOf(keys)
    const attempt = async () =>
      this.#request(keys, once, (busy) => {
        key = busy
      })
    const gaveUp = async (tries: number, waited: number) => {
      // Do not ask the store for a call that did not wait: callers often repeat it at once.
      const contention = tries > 1 ? await timeouts.of(key, waited, signal) : timeouts.guess(false)
      return gaveUpError(key, tries, typeof keys === 'string' ? 1 : keys.length, contention)
    }
    const outage = (flags & Flag.FailFast) === 0 ? undefined : this.#context.outage
    return retrying({ keys, retry, wait, signal, pauses, outage, onRetry, attempt, gaveUp })
  }

  tryAcquire(key: string, options?: api.TryAcquireOptions): Promise<Lease | null>
  tryAcquire(key: string | readonly string[], options?: api.TryAcquireOptions): Promise<AnyLease | null>
  tryAcquire(key: string | readonly string[], options?: api.TryAcquireOptions): Promise<AnyLease | null> {
    try {
      const keys = this.#checkKeys(key)
      const request = options === undefined ? this.#tryDefaults : parseTry(options, this.#tryDefaults, NOT_HERE)
      if (!hasListeners()) return this.#request(keys, request)
      const call = { identity: this.#context.identity, method: 'tryAcquire', keys, request } as const
      return traced(call, (tracedRequest) => this.#request(keys, tracedRequest))
    } catch (error) {
      return Promise.reject(nameCall('tryAcquire', error))
    }
  }

  #request(
    keys: string | readonly string[],
    request: LockRequest,
    busy?: (key: string) => void,
  ): Promise<AnyLease | null> {
    const context = this.#context
    context.checkOpen(firstOf(keys))
    if (typeof keys === 'string') return Lease.request(context, keys, request, this.#observer)
    return MultiLease.request(context, keys, request, busy)
  }

  /**
   * Runs both forms of withLock(): see types/client.d.ts for the arguments. Work that declares the
   * parameter `done` is a callback, and the call returns `undefined`.
   */
  withLock(key: string | readonly string[], second: unknown, third?: unknown): Promise<unknown> | undefined {
    // If `second` is neither options nor a function, the error is about the function.
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
      return Promise.reject(nameCall('withLock', error))
    }
    const acquire = () => this.#ask('withLock', key, options as Options | undefined, this.#sectionDefaults)
    if ((work as SectionFunction<AnyLease, unknown>).length < CALLBACK)
      return runSection(this.#context, acquire, work as SectionFunction<AnyLease, unknown>)
    runCallbackSection(this.#context, acquire, work as SectionCallback<AnyLease>)
    return undefined
  }
}

/** Returns whether `given` is a plain object, as options are. */
function isPlain(given: unknown): boolean {
  if (typeof given !== 'object' || given === null) return false
  const prototype: unknown = Object.getPrototypeOf(given)
  return prototype === Object.prototype || prototype === null
}
