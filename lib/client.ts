import type * as api from '../index'
import { Acquirer, type Host } from './acquirer'
import { badValue, checkFunction } from './arguments'
import { call } from './call'
import { breaker } from './channels'
import type { Desk } from './claim'
import { Closing } from './closing'
import { defineDispose } from './dispose'
import { Emitter } from './emitter'
import * as errors from './errors'
import { releaseOnExit } from './exit'
import type { Source } from './following'
import type { Lease } from './lease'
import { bridge, type ClientConfig, Flag, open } from './native'
import { parseOnce, runOnce } from './once'
import { type Asked, parseClient, parseClose, parseList, parseTry } from './options'
import { Outage } from './outage'
import { guarded } from './rethrow'
import { Schedule } from './schedule'
import type { Work } from './section'
import { Sections } from './sections'
import { ReadWriteLock, Semaphore } from './shared'
import { checkerOf } from './side-keys'
import { closeOnSignals, forgetSignals } from './signals'
import { identify } from './store-identity'
import { asError } from './thrown'
import { readTicket, type Ticket } from './ticket'
import { Timeouts } from './timeouts'
import { type Unheard, warnOnce } from './unheard'
import { watch } from './watch'

type Keys = api.Keys
type HeldOf<K> = api.HeldOf<K>
type Options = api.AcquireOptions | undefined
type Outcome<T> = api.OnceOutcome<T>
type Event = keyof api.LockClientEvents
type Listener<K extends Event> = (...told: api.LockClientEvents[K]) => void

/** What a client tells, and what every emitter does. */
const EVENTS = ['lost', 'error', 'breaker', 'newListener', 'removeListener']

export class LockClient extends Emitter<api.LockClientEvents> implements api.LockClient {
  readonly #id: number
  readonly #host: Host
  readonly #acquirer: Acquirer
  readonly #desk: Desk
  readonly #name: string
  readonly #prefix: string
  readonly #stores: readonly string[]
  #source: Source | undefined
  readonly #drain: number
  #closing: Closing | undefined
  #lastStats: api.LockStats | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(LockClient.prototype, (client) => client.close())
  }

  constructor(options?: string | readonly string[] | api.LockClientOptions) {
    const { config, origin, asked, drain, releaseOnSignal } = parseClient(options)
    super()
    if (open()) releaseOnExit()
    const { client, watch: slot } = openClient(config, origin)
    this.#id = client
    this.#name = config.name
    this.#prefix = config.prefix
    this.#stores = config.stores
    this.#drain = drain
    this.#host = this.#asHost()
    watch(slot, this.#host.outage, (health) => {
      if (breaker.hasSubscribers) breaker.publish({ ...this.#identity(), health })
      guarded(() => this.emit('breaker', health))
    })
    this.#acquirer = new Acquirer(this.#host, asked)
    const { pauses, sections, outage } = this.#host
    const { name } = config
    const inspect = (key: string) => this.inspect(key)
    const isQuorum = this.#stores.length > 1
    this.#desk = { acquirer: this.#acquirer, pauses, sections, outage, name, isQuorum, inspect }
    closeOnSignals(this, releaseOnSignal)
  }

  /** The way to the locks of `client` for those who are no users of it. */
  static acquirerOf(client: LockClient): Acquirer {
    return client.#acquirer
  }

  /** Returns the host of `client`, for workers. */
  static hostOf(client: LockClient): Host {
    return client.#host
  }

  /** Whether `client` was closed, or is being closed. */
  static isClosed(client: api.LockClient): boolean {
    return client instanceof LockClient && client.#closing !== undefined
  }

  /** What messages say of `client`. */
  static identityOf(client: LockClient): Source {
    return client.#identity()
  }

  acquire<K extends Keys>(key: K, options?: api.AcquireOptions): Promise<HeldOf<K>> {
    return this.#acquirer.acquire(key, options) as Promise<unknown> as Promise<HeldOf<K>>
  }

  tryAcquire<K extends Keys>(key: K, options?: api.TryAcquireOptions): Promise<HeldOf<K> | null> {
    return this.#acquirer.tryAcquire(key, options) as Promise<HeldOf<K> | null>
  }

  withLock<T, K extends Keys = string>(key: K, fn: Work<HeldOf<K>, T>): Promise<T>
  withLock<T, K extends Keys = string>(key: K, options: Options, fn: Work<HeldOf<K>, T>): Promise<T>
  withLock<T>(keys: readonly string[], fn: Work<api.MultiLease, T>): Promise<T>
  withLock<T>(keys: readonly string[], options: Options, fn: Work<api.MultiLease, T>): Promise<T>
  withLock<K extends Keys>(key: K, fn: api.LockCallback<HeldOf<K>>): void
  withLock<K extends Keys>(key: K, options: Options, fn: api.LockCallback<HeldOf<K>>): void
  withLock<T, K extends Keys = Keys>(key: K, fn: Work<HeldOf<K>, T>): Promise<T>
  withLock<T, K extends Keys = Keys>(key: K, options: Options, fn: Work<HeldOf<K>, T>): Promise<T>
  withLock(key: Keys, second: unknown, third?: unknown): unknown {
    return this.#acquirer.withLock(key, second, third)
  }

  semaphore(key: string, permits: number): Semaphore {
    if (this.#stores.length > 1) {
      throw badValue('A quorum has no semaphores: permits counted at different nodes do not add up. Use one server')
    }
    return new Semaphore(this.#acquirer, key, permits)
  }

  readWriteLock(key: string): ReadWriteLock {
    return new ReadWriteLock(this.#acquirer, key)
  }

  override once<K extends Event>(event: K, listener: Listener<K>): this
  override once<T>(key: string, id: string, fn: Work<api.Lease, T>, options?: api.OnceOptions): Promise<Outcome<T>>
  override once(first: unknown, second: unknown, ...rest: unknown[]): unknown {
    if (typeof second !== 'function') return this.#once(first, second, ...rest)
    if (typeof first === 'string' && !EVENTS.includes(first)) {
      throw badValue('once() takes key, id and fn; or it takes an event and a listener, but there is no such event')
    }
    return super.once(first as Event, second as Listener<Event>)
  }

  async #once(key: unknown, id: unknown, fn?: unknown, options: unknown = {}): Promise<Outcome<unknown>> {
    const deed = parseOnce<unknown>(this.#desk, key, id, fn, options)
    return runOnce(this.#desk, { ...deed, failed: this.#host.failed })
  }

  schedule(name: string, cron: string, fn: api.ScheduledJob, options: api.ScheduleOptions = {}): Schedule {
    return new Schedule(this.#host, this.#desk, name, cron, fn, options)
  }

  async adopt(ticket: string, options?: api.AdoptOptions): Promise<Lease> {
    return this.#acquirer.adopt(...this.#adoption(ticket, options))
  }

  withAdopted<T>(ticket: string, fn: Work<api.Lease, T>): Promise<T>
  withAdopted<T>(ticket: string, options: api.AdoptOptions, fn: Work<api.Lease, T>): Promise<T>
  async withAdopted(ticket: string, second: unknown, third?: unknown): Promise<unknown> {
    const [options, work] = typeof second === 'function' ? [undefined, second] : [second, third]
    checkFunction('fn', work)
    return this.#acquirer.withAdopted(...this.#adoption(ticket, options), work as Work<api.Lease, unknown>)
  }

  #adoption(ticket: string, options: unknown): [Ticket, Asked] {
    const read = readTicket(ticket)
    const { flags } = this.#acquirer.defaults
    const { ttl, most } = read
    const defaults = { ...this.#acquirer.defaults, ttl, most, flags: flags | Flag.TicketTtl }
    return [read, parseTry(options === undefined ? {} : options, defaults)]
  }

  async inspect(key: string): Promise<api.LockInfo | null> {
    this.#acquirer.checkKey(key)
    this.#checkOpen(key)
    const text = await call(bridge.inspect(this.#id, key), key)
    if (text === null) return null
    return withFirst(JSON.parse(text))
  }

  async list(options?: api.ListOptions): Promise<api.LockList> {
    const { pattern, limit } = parseList(options)
    this.#checkOpen()
    const text = await call(bridge.list(this.#id, pattern, limit))
    const told: { complete: boolean; locks: (BareInfo & { key: string })[] } = JSON.parse(text as string)
    const start = this.#prefix.length
    const locks = told.locks.map(({ key, ...info }) => ({ key: key.slice(start), ...withFirst(info) }))
    return { locks, complete: told.complete }
  }

  async forceRelease(key: string): Promise<boolean> {
    this.#acquirer.checkKey(key)
    this.#checkOpen(key)
    return (await call(bridge.breakLock(this.#id, key), key)) !== null
  }

  stats(): api.LockStats {
    return this.#lastStats ?? JSON.parse(bridge.stats(this.#id))
  }

  async ready(): Promise<void> {
    this.#checkOpen()
    await call(bridge.ping(this.#id))
  }

  async diagnose(): Promise<api.Diagnosis> {
    this.#checkOpen()
    const text = await call(bridge.diagnose(this.#id, this.#acquirer.defaults.ttl))
    return JSON.parse(text as string)
  }

  close(options?: api.CloseOptions): Promise<void> {
    try {
      const drain = parseClose(options)
      if (this.#closing === undefined) {
        this.#closing = this.#asClosing()
        this.#closing.begin(drain ?? this.#drain)
      } else if (drain !== undefined) {
        this.#closing.limit(drain)
      }
      return this.#closing.over
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #asClosing(): Closing {
    return new Closing(this.#host, {
      leaving: () => {
        this.#lastStats = { ...this.stats(), held: 0, waiting: 0 }
      },
      left: () => forgetSignals(this),
    })
  }

  #checkOpen(key?: string): void {
    if (this.#closing !== undefined) throw errors.closed(key)
  }

  /** Who it is to those who listen; made when somebody does. */
  #identity(): Source {
    if (this.#source === undefined) {
      const servers = this.stats().stores.map(({ store }) => store)
      this.#source = { client: this, name: this.#name, store: identify(this.#stores, servers) }
    }
    return this.#source
  }

  #unheard(): Unheard {
    return { who: `client of ${this.#identity().store.url}`, remedy: "client.on('error', (error) => …)" }
  }

  /** What leases see of it; an object of its own, so that users do not see it. */
  #asHost(): Host {
    const identity = () => this.#identity()
    const outage = new Outage()
    const asker = { id: this.#id, name: this.#name, isQuorum: this.#stores.length > 1 }
    const timeouts = new Timeouts(asker, outage)
    return {
      get source() {
        return identity()
      },
      id: this.#id,
      isDrained: false,
      timeouts,
      pauses: new Set([timeouts.close]),
      sections: new Sections(),
      outage,
      schedules: new Set(),
      checkOpen: (key) => this.#checkOpen(key),
      checkNames: checkerOf(this.#prefix),
      hearsLosses: () => this.listenerCount('lost') > 0,
      lost: (lease, error) => this.emit('lost', lease, error),
      hearsErrors: () => this.listenerCount('error') > 0,
      failed: (error) => {
        // Without a listener it would be thrown.
        if (this.listenerCount('error') > 0) guarded(() => this.emit('error', asError(error)))
        else warnOnce(this, error, () => this.#unheard())
      },
    }
  }
}

type BareInfo = Omit<api.LockInfo, keyof api.LeaseInfo>

/**
 * Adds what is known of the first lease, which is mostly the only one. `servers` is that of the
 * lease that the fewest servers have: a caller may wait until all servers have all leases.
 */
function withFirst(info: BareInfo): api.LockInfo {
  const [first = { holder: null, fence: null, remaining: null }] = info.leases
  const told = info.leases.flatMap(({ servers }) => servers ?? [])
  if (told.length === 0) return { ...first, ...info }
  const servers = told.reduce((fewest, other) => (other.held < fewest.held ? other : fewest))
  return { ...first, ...info, servers }
}

function openClient(config: ClientConfig, origin: string | undefined): { client: number; watch: number } {
  try {
    return bridge.openClient(config)
  } catch (error) {
    // Its message is made for people, and has no password in it.
    const where = origin === undefined ? '' : ` (the environment variable ${origin} names this store)`
    throw badValue(`${(error as Error).message}${where}`)
  }
}
