import type * as api from '../../index'
import { breaker } from '../diagnostics/channels'
import { closedError, notBrokenError } from '../diagnostics/errors'
import type { ClientIdentity } from '../diagnostics/tracing'
import { type EmitterDescription, warnOnce } from '../diagnostics/unheard'
import { parseTry } from '../lock/acquire-options'
import { Acquirer } from '../lock/acquirer'
import type { ClientContext } from '../lock/client-context'
import { ownLeasesOf } from '../lock/client-leases'
import type { Lease } from '../lock/lease'
import type { LockRequest } from '../lock/lock-request'
import { Outage } from '../lock/outage'
import type { OnceContext } from '../lock/schedule/acquire-once'
import { parseOnce, runOnce } from '../lock/schedule/once'
import { Schedule } from '../lock/schedule/schedule'
import { Sections } from '../lock/sections'
import { ReadWriteLock, Semaphore } from '../lock/semaphore'
import { checkerOf } from '../lock/side-keys'
import { readTicket, type Ticket } from '../lock/ticket'
import { Timeouts } from '../lock/timeouts'
import type { SectionFunction } from '../lock/with-lock'
import type { ClientConfig } from '../native/addon'
import { Flag } from '../native/protocol'
import { bridge, openBridge } from '../native/records'
import { badValue, checkFunction, inCall } from '../util/arguments'
import { asError } from '../util/as-error'
import { defineDispose } from '../util/dispose'
import { Emitter } from '../util/emitter'
import { callListener } from '../util/uncaught'
import { answerOf } from './answer'
import { receiveBreakerReports } from './breaker-reports'
import { parseClient, parseClose, parseList } from './client-options'
import { Closing } from './closing'
import { listenToExit, releaseOnExit } from './exit'
import { type BareInfo, withFirst } from './lock-info'
import { closeOnSignals, forgetSignals } from './signals'
import { identify } from './store/store-identity'

type Keys = api.Keys
type HeldOf<K> = api.HeldOf<K>
type Options = api.AcquireOptions | undefined
type Outcome<T> = api.OnceOutcome<T>
type Event = keyof api.LockClientEvents
type Listener<K extends Event> = (...told: api.LockClientEvents[K]) => void

/** The events of a client, and those of every emitter. */
const EVENTS = ['lost', 'error', 'breaker', 'newListener', 'removeListener']

export class LockClient extends Emitter<api.LockClientEvents> implements api.LockClient {
  readonly #id: number
  readonly #context: ClientContext
  readonly #acquirer: Acquirer
  readonly #onceContext: OnceContext
  readonly #name: string
  readonly #prefix: string
  readonly #stores: readonly string[]
  #knownIdentity: ClientIdentity | undefined
  readonly #drain: number
  #closing: Closing | undefined
  #lastStats: api.LockStats | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(LockClient.prototype, (client) => client.close())
  }

  constructor(options?: string | readonly string[] | api.LockClientOptions) {
    const { config, variable, defaults, drain, releaseOnSignal } = parseClient(options)
    super()
    openBridge(releaseOnExit)
    listenToExit()
    const { client, watch: slot } = openClient(config, variable)
    this.#id = client
    this.#name = config.name
    this.#prefix = config.prefix
    this.#stores = config.stores
    this.#drain = drain
    this.#context = this.#makeContext(config.maxStall)
    receiveBreakerReports(slot, this.#context.outage, (health) => {
      if (breaker.hasSubscribers) breaker.publish({ ...this.#identity(), health })
      callListener(() => this.emit('breaker', health))
    })
    this.#acquirer = new Acquirer(this.#context, defaults)
    const { pauses, sections, outage } = this.#context
    const { name, prefix } = config
    const inspect = (key: string) => this.inspect(key)
    const isQuorum = this.#stores.length > 1
    this.#onceContext = { acquirer: this.#acquirer, pauses, sections, outage, name, prefix, isQuorum, inspect }
    closeOnSignals(this, releaseOnSignal)
  }

  /** Returns the acquirer of `client`, for workers and the command line. */
  static acquirerOf(client: LockClient): Acquirer {
    return client.#acquirer
  }

  /** Returns the context of `client`, for workers. */
  static contextOf(client: LockClient): ClientContext {
    return client.#context
  }

  /** Returns whether `client` was closed, or is being closed. */
  static isClosed(client: api.LockClient): boolean {
    return client instanceof LockClient && client.#closing !== undefined
  }

  /** Returns the identity of `client` in messages. */
  static identityOf(client: LockClient): ClientIdentity {
    return client.#identity()
  }

  acquire<K extends Keys>(key: K, options?: api.AcquireOptions): Promise<HeldOf<K>> {
    return this.#acquirer.acquire(key, options) as Promise<unknown> as Promise<HeldOf<K>>
  }

  tryAcquire<K extends Keys>(key: K, options?: api.TryAcquireOptions): Promise<HeldOf<K> | null> {
    return this.#acquirer.tryAcquire(key, options) as Promise<HeldOf<K> | null>
  }

  withLock<T, K extends Keys = string>(key: K, fn: SectionFunction<HeldOf<K>, T>): Promise<T>
  withLock<T, K extends Keys = string>(key: K, options: Options, fn: SectionFunction<HeldOf<K>, T>): Promise<T>
  withLock<T>(keys: readonly string[], fn: SectionFunction<api.MultiLease, T>): Promise<T>
  withLock<T>(keys: readonly string[], options: Options, fn: SectionFunction<api.MultiLease, T>): Promise<T>
  withLock<K extends Keys>(key: K, fn: api.LockCallback<HeldOf<K>>): void
  withLock<K extends Keys>(key: K, options: Options, fn: api.LockCallback<HeldOf<K>>): void
  withLock<T, K extends Keys = Keys>(key: K, fn: SectionFunction<HeldOf<K>, T>): Promise<T>
  withLock<T, K extends Keys = Keys>(key: K, options: Options, fn: SectionFunction<HeldOf<K>, T>): Promise<T>
  withLock(key: Keys, second: unknown, third?: unknown): unknown {
    return this.#acquirer.withLock(key, second, third)
  }

  semaphore(key: string, permits: number): Semaphore {
    return inCall('semaphore', () => {
      if (this.#stores.length > 1) {
        throw badValue('A quorum has no semaphores: permits counted at different nodes do not add up. Use one server')
      }
      return new Semaphore(this.#acquirer, key, permits)
    })
  }

  readWriteLock(key: string): ReadWriteLock {
    return inCall('readWriteLock', () => new ReadWriteLock(this.#acquirer, key))
  }

  override once<K extends Event>(event: K, listener: Listener<K>): this
  override once<T>(
    key: string,
    id: string,
    fn: SectionFunction<api.Lease, T>,
    options?: api.OnceOptions,
  ): Promise<Outcome<T>>
  override once(first: unknown, second: unknown, ...rest: unknown[]): unknown {
    if (typeof second !== 'function') return this.#once(first, second, ...rest)
    if (typeof first === 'string' && !EVENTS.includes(first)) {
      throw badValue('once() takes key, id and fn; or it takes an event and a listener, but there is no such event')
    }
    return super.once(first as Event, second as Listener<Event>)
  }

  async #once(key: unknown, id: unknown, fn?: unknown, options: unknown = {}): Promise<Outcome<unknown>> {
    const task = inCall('once', () => parseOnce<unknown>(this.#onceContext, key, id, fn, options))
    return runOnce(this.#onceContext, { ...task, failed: this.#context.failed })
  }

  schedule(name: string, cron: string, fn: api.ScheduledJob, options: api.ScheduleOptions = {}): Schedule {
    return inCall('schedule', () => new Schedule(this.#context, this.#onceContext, name, cron, fn, options))
  }

  async adopt(ticket: string, options?: api.AdoptOptions): Promise<Lease> {
    return this.#acquirer.adopt(...inCall('adopt', () => this.#adoption(ticket, options)))
  }

  withAdopted<T>(ticket: string, fn: SectionFunction<api.Lease, T>): Promise<T>
  withAdopted<T>(ticket: string, options: api.AdoptOptions, fn: SectionFunction<api.Lease, T>): Promise<T>
  async withAdopted(ticket: string, second: unknown, third?: unknown): Promise<unknown> {
    const [options, work] = typeof second === 'function' ? [undefined, second] : [second, third]
    const adoption = inCall('withAdopted', () => {
      checkFunction('fn', work)
      return this.#adoption(ticket, options)
    })
    return this.#acquirer.withAdopted(...adoption, work as SectionFunction<api.Lease, unknown>)
  }

  #adoption(ticket: string, options: unknown): [Ticket, LockRequest] {
    const read = readTicket(ticket)
    const { flags } = this.#acquirer.defaults
    const { ttl, most } = read
    const defaults = { ...this.#acquirer.defaults, ttl, most, flags: flags | Flag.TicketTtl }
    return [read, parseTry(options === undefined ? {} : options, defaults)]
  }

  async inspect(key: string): Promise<api.LockInfo | null> {
    inCall('inspect', () => this.#acquirer.checkKey(key))
    this.#checkOpen(key)
    const text = await answerOf(bridge.inspect(this.#id, key), key)
    if (text === null) return null
    return withFirst(JSON.parse(text))
  }

  async list(options?: api.ListOptions): Promise<api.LockList> {
    const { pattern, limit } = inCall('list', () => parseList(options))
    this.#checkOpen()
    const text = await answerOf(bridge.list(this.#id, pattern, limit))
    const told: { complete: boolean; locks: (BareInfo & { key: string })[] } = JSON.parse(text as string)
    const start = this.#prefix.length
    const locks = told.locks.map(({ key, ...info }) => ({ key: key.slice(start), ...withFirst(info) }))
    return { locks, complete: told.complete }
  }

  async forceRelease(key: string): Promise<boolean> {
    inCall('forceRelease', () => this.#acquirer.checkKey(key))
    this.#checkOpen(key)
    try {
      return (await answerOf(bridge.breakLock(this.#id, key), key)) !== null
    } catch (error) {
      throw notBrokenError(error, key, this.#prefix)
    }
  }

  stats(): api.LockStats {
    return this.#lastStats ?? JSON.parse(bridge.stats(this.#id))
  }

  async ready(): Promise<void> {
    this.#checkOpen()
    await answerOf(bridge.ping(this.#id))
  }

  async diagnose(): Promise<api.Diagnosis> {
    this.#checkOpen()
    const text = await answerOf(bridge.diagnose(this.#id, this.#acquirer.defaults.ttl))
    return JSON.parse(text as string)
  }

  close(options?: api.CloseOptions): Promise<void> {
    try {
      const drain = inCall('close', () => parseClose(options))
      if (this.#closing === undefined) {
        this.#closing = this.#makeClosing()
        this.#closing.begin(drain ?? this.#drain)
      } else if (drain !== undefined) {
        this.#closing.limit(drain)
      }
      return this.#closing.over
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #makeClosing(): Closing {
    return new Closing(this.#context, {
      beforeClose: () => {
        this.#lastStats = { ...this.stats(), held: 0, waiting: 0 }
      },
      afterClose: () => forgetSignals(this),
    })
  }

  #checkOpen(key?: string): void {
    if (this.#closing !== undefined) throw closedError(key)
  }

  /** Returns the identity of this client in messages. Creates it on the first call. */
  #identity(): ClientIdentity {
    if (this.#knownIdentity === undefined) {
      const servers = this.stats().stores.map(({ store }) => store)
      this.#knownIdentity = { client: this, name: this.#name, store: identify(this.#stores, servers) }
    }
    return this.#knownIdentity
  }

  #describe(): EmitterDescription {
    return { who: `client of ${this.#identity().store.url}`, remedy: "client.on('error', (error) => …)" }
  }

  /** Returns the part of this client that its leases use, as an object that users do not see. */
  #makeContext(maxStall: number): ClientContext {
    const identity = () => this.#identity()
    const outage = new Outage()
    const caller = { id: this.#id, name: this.#name, isQuorum: this.#stores.length > 1 }
    const timeouts = new Timeouts(caller, outage, ownLeasesOf)
    return {
      get identity() {
        return identity()
      },
      id: this.#id,
      maxStall,
      isDrained: false,
      timeouts,
      pauses: new Set([timeouts.close]),
      sections: new Sections(),
      outage,
      schedules: new Set(),
      checkOpen: (key) => this.#checkOpen(key),
      checkNames: checkerOf(this.#prefix),
      hasLossListener: () => this.listenerCount('lost') > 0,
      lost: (lease, error) => this.emit('lost', lease, error),
      hasErrorListener: () => this.listenerCount('error') > 0,
      failed: (error) => {
        // An `error` event without a listener would be thrown.
        if (this.listenerCount('error') > 0) callListener(() => this.emit('error', asError(error)))
        else warnOnce(this, error, () => this.#describe())
      },
    }
  }
}

function openClient(config: ClientConfig, variable: string | undefined): { client: number; watch: number } {
  try {
    return bridge.openClient(config)
  } catch (error) {
    // Native code writes the message for people, without passwords.
    const where = variable === undefined ? '' : ` (the environment variable ${variable} names this store)`
    throw badValue(`${(error as Error).message}${where}`)
  }
}
