// A lease, from the question for it to its end. One object for both: an acquire makes the lease and a promise,
// nothing else.

import { inspect } from 'node:util'
import type * as api from '../index'
import { type Abortable, onAbort, unwatch, watch } from './abort'
import { checkTtl } from './arguments'
import type { Contention, Own } from './contention'
import { defineDispose } from './dispose'
import * as errors from './errors'
import { type Following, follow } from './following'
import { bridge, Kind, note, Phase, type Slot, slots, tell } from './native'
import type { Asked } from './options'
import { type Deferred, defer, ignore, type Make, raise } from './promise'
import { guarded } from './rethrow'
import { type Ticket, writeTicket } from './ticket'
import type { Timeouts } from './timeouts'

/** Whose lease it is. */
export interface Owner {
  readonly id: number
  /**
   * Whether the client has closed and its drain is over. A lease that is granted after that begins
   * no section.
   */
  readonly isDrained: boolean
  /** The calls whose wait has ended. */
  readonly timeouts: Timeouts
  /** Whether anybody wants to know of a loss. */
  hearsLosses(): boolean
  lost(lease: api.Lease, error: api.LockLostError): void
  /** A failure that no promise tells. */
  failed(error: unknown): void
}

/** Who is told, beside the owner, what becomes of a lease: a worker. */
export interface Observer {
  renewed(lease: api.Lease): void
  /** Called once, while release() or detach() runs. */
  released(lease: api.Lease): void
  lost(lease: api.Lease, error: api.LockLostError): void
}

/** Or a detachment, which renews it for the last time. */
interface Renewal extends Deferred<void> {
  /** `undefined`: the one it has. */
  readonly ttl: number | undefined
}

// A symbol, because users of a lease must not see the method.
export const letRunOut: unique symbol = Symbol('leasehold.letRunOut')

export class Lease implements api.Lease, Slot, Abortable {
  readonly #owner: Owner
  readonly #key: string
  readonly #asked: Asked
  readonly #observer: Observer | undefined
  #slot = 0
  #phase: number = Phase.Pending
  #ttl: number
  #fence = 0
  #token = ''
  /** Whether whoever asked for it has it. */
  #handedOver = false
  /** Settle what was asked for last: the lease, or its release. `undefined` once it is. */
  #resolve: ((value: never) => void) | undefined
  #reject: ((make: Make) => void) | undefined
  #released: Promise<boolean> | undefined
  #renewal: Renewal | undefined
  #detached = false
  /**
   * Whether the section under the lease has outlived its time. The lease then counts as lost and is
   * no longer renewed, but only the end of the section releases it.
   */
  #runsOut = false
  #controller: AbortController | undefined
  #loss: api.LockLostError | undefined
  /**
   * How the last renewal failed before the loss, as native code tells it; `undefined` until native
   * code has told the loss.
   */
  #failure: string | null | undefined
  /** Set if somebody listens. */
  #following: Following | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  private constructor(owner: Owner, key: string, asked: Asked, observer: Observer | undefined) {
    this.#owner = owner
    this.#key = key
    this.#asked = asked
    this.#ttl = asked.ttl
    this.#observer = observer
  }

  /**
   * Resolves with the lease, or with `null` if another client holds the lock and `asked` does not
   * wait.
   */
  static request(owner: Owner, key: string, asked: Asked, observer?: Observer): Promise<Lease | null> {
    const { ttl, wait, maxHold, most, flags, trace, signal } = asked
    if (signal?.aborted) throw errors.aborted(key, signal.reason)
    const lease = new Lease(owner, key, asked, observer)
    return lease.#begin(bridge.acquire(owner.id, key, ttl, wait, maxHold, most, flags, trace))
  }

  /** Resolves with the lease that was detached into `ticket`. */
  static adopt(owner: Owner, ticket: Ticket, asked: Asked): Promise<Lease> {
    const { ttl, maxHold, flags, trace, signal } = asked
    if (signal?.aborted) throw errors.aborted(ticket.key, signal.reason)
    const lease = new Lease(owner, ticket.key, asked, undefined)
    return lease.#begin(bridge.adopt(owner.id, ticket, ttl, maxHold, flags, trace))
  }

  /** Returns what a client itself knows about the locks `keys` that it holds or waits for. */
  static ownOf(client: number, keys: ReadonlySet<string>): ReadonlyMap<string, Own> {
    const known = new Map<string, { fences: number[]; waiting: number }>()
    for (const lease of slots) {
      if (!(lease instanceof Lease) || lease.#owner.id !== client || !keys.has(lease.#key)) continue
      const own = known.get(lease.#key) ?? { fences: [], waiting: 0 }
      known.set(lease.#key, own)
      if (lease.#phase === Phase.Pending && lease.#asked.wait > 0) own.waiting++
      else if (lease.#isAlive) own.fences.push(lease.#fence)
    }
    return known
  }

  /** Stops renewing all leases that a client still holds; each then ends by its ttl. */
  static runOut(client: number): void {
    for (const slot of slots) if (slot instanceof Lease && slot.#owner.id === client) slot[letRunOut]()
  }

  #begin<T>(slot: number): Promise<T> {
    this.#slot = slot
    slots[slot] = this
    const { signal } = this.#asked
    if (signal !== undefined) watch(signal, this)
    return this.#promise()
  }

  #promise<T>(): Promise<T> {
    const promise = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    return promise.then(undefined, raise)
  }

  get key(): string {
    return this.#key
  }

  get token(): string {
    // After the end the slot may be somebody else's.
    if (this.#token === '' && this.#phase === Phase.Held) this.#token = bridge.token(this.#slot)
    return this.#token
  }

  get fence(): number {
    return this.#fence
  }

  get ttl(): number {
    return this.#ttl
  }

  get isHeld(): boolean {
    return this.#isAlive && !this.#runsOut
  }

  /** Whether the store still keeps other clients out. */
  get #isAlive(): boolean {
    return this.#phase === Phase.Held && bridge.isHeld(this.#slot)
  }

  get remaining(): number {
    return this.#phase === Phase.Held && !this.#runsOut ? bridge.remaining(this.#slot) : 0
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      if (this.#look() >= Phase.FirstLoss || this.#runsOut) this.#controller.abort(this.#lossTold())
    }
    return this.#controller.signal
  }

  assertHeld(): void {
    if (!this.isHeld) throw this.#ended()
  }

  async renew(ttl?: number): Promise<void> {
    if (ttl !== undefined) checkTtl(ttl)
    const renew = async () => {
      this.assertHeld()
      const ask = () => {
        // The drain may have ended while this call waited for another renewal.
        this.assertHeld()
        bridge.renew(this.#slot, ttl ?? 0)
      }
      await this.#renewed(ask, ttl)
    }
    await (this.#following?.renew(ttl ?? this.#ttl, renew) ?? renew())
  }

  async detach(ttl?: number): Promise<string> {
    if (ttl !== undefined) checkTtl(ttl)
    const { key, token, fence } = this
    await this.#renewed(() => bridge.detach(this.#slot, ttl ?? 0), undefined)
    return writeTicket({ key, token, fence, ttl: this.#ttl, most: this.#asked.most })
  }

  /**
   * Calls `ask` and waits for the answer, one call after the other: two answers could not be told
   * apart.
   */
  async #renewed(ask: () => void, ttl: number | undefined): Promise<void> {
    while (this.#renewal !== undefined) await this.#renewal.promise.catch(ignore)
    if (!this.#isAlive) throw this.#ended()
    ask()
    this.#renewal = { ...defer<void>(), ttl }
    await this.#renewal.promise.catch(raise)
  }

  release(): Promise<boolean> {
    if (this.#released !== undefined) return this.#released
    const held = this.#phase === Phase.Held
    this.#released = held ? this.#release() : Promise.resolve(false)
    // Last: it may run code of the user, to which the lease has to look released.
    if (held && this.#handedOver) guarded(() => this.#observer?.released(this))
    return this.#released
  }

  #release(): Promise<boolean> {
    return this.#following?.release(() => this.#giveBack()) ?? this.#giveBack()
  }

  #giveBack(): Promise<boolean> {
    bridge.release(this.#slot)
    this.#phase = Phase.Released
    return this.#promise()
  }

  static {
    defineDispose(Lease.prototype, (lease) => lease.release().catch((error) => lease.#owner.failed(error)))
  }

  /** Where it is now, at the latest news. */
  #look(): number {
    if (this.#phase === Phase.Held) {
      const phase = bridge.phase(this.#slot)
      if (phase >= Phase.Released) this.#phase = phase
    }
    return this.#phase
  }

  /** Why it is not held. */
  #ended(): api.LockError {
    const phase = this.#look()
    if (this.#runsOut && phase !== Phase.Released) return this.#lossTold()
    if (phase === Phase.Released) return this.#detached ? errors.detached(this.#key) : errors.released(this.#key)
    return this.#lost(phase)
  }

  #lost(phase: number, make = errors.lost): api.LockLostError {
    // Seen here before it was told. After the last word the slot may be somebody else's.
    const isOurs = this.#failure === undefined && slots[this.#slot] === this
    const failure = isOurs ? bridge.failure(this.#slot) : (this.#failure ?? null)
    return make(this.#key, phase - Phase.FirstLoss, failure, this.#asked.maxHold)
  }

  /** One error for the signal and the events, so that they can be compared. */
  #lossTold(): api.LockLostError {
    this.#loss ??= this.#lost(this.#phase, errors.lostWithoutStack)
    return this.#loss
  }

  [letRunOut](): void {
    if (this.#runsOut || this.#look() !== Phase.Held || !this.#handedOver) return
    this.#loss = errors.lost(this.#key, Phase.Closed - Phase.FirstLoss, null, 0)
    this.#runsOut = true
    bridge.stopRenewing(this.#slot)
    this.#following?.lost(this.#loss)
    this.#controller?.abort(this.#loss)
    guarded(() => this.#owner.lost(this, this.#lossTold()))
  }

  [follow](following: Following): void {
    this.#following = following
    // It may have ended between its grant and now.
    const phase = this.#look()
    if (phase >= Phase.FirstLoss) following.lost(this.#lossTold())
    else if (phase === Phase.Released) following.given('released')
  }

  [note](kind: number, a: number, b: number): void {
    if (kind === Kind.Acquired) {
      if (this.#phase !== Phase.Pending) return
      this.#phase = Phase.Held
      this.#fence = a
    } else if (kind === Kind.Shortened) {
      this.#ttl = a
    } else if (kind === Kind.Lost) {
      this.#phase = a
      this.#failure = b === 0 ? null : bridge.text(b - 1)
    } else if (kind === Kind.Released && a === 0) {
      this.#phase = Phase.Missing
    } else if (kind === Kind.Detached) {
      this.#phase = Phase.Released
      this.#detached = true
    }
  }

  [tell](kind: number, a: number, b: number): void {
    switch (kind) {
      case Kind.Acquired:
        // Aborted by what was told just before, and released.
        if (this.#released !== undefined) break
        // Lost again while this thread was away: nobody may start work on it.
        if (this.#phase === Phase.Held && this.#owner.isDrained) this.#giveBackUnseen()
        else if (this.#phase === Phase.Held) this.#handOver()
        else this.#fail(() => (this.#phase === Phase.Closed ? errors.closed(this.#key) : this.#ended()))
        break
      case Kind.Released:
        this.#settle((a === 1) as never)
        this.#endRenewal()
        break
      case Kind.Detached:
        this.#endRenewal(null)
        // Its release came too late.
        this.#settle(false as never)
        this.#following?.given('detached')
        if (this.#released === undefined) guarded(() => this.#observer?.released(this))
        break
      case Kind.Lost:
        // Either there was nothing to adopt, or there is nothing to release.
        if (this.#released === undefined) this.#fail(() => this.#ended())
        else this.#settle(false as never)
        this.#endRenewal()
        this.#tellLoss()
        break
      case Kind.Failed: {
        const message = bridge.text(b)
        // Whoever does not wait for the release shall not be ended by its failure.
        this.#released?.catch(ignore)
        this.#fail(() => errors.unavailable(a, message, this.#key))
        this.#endRenewal()
        break
      }
      case Kind.Busy:
        this.#settle(null as never)
        break
      case Kind.TimedOut:
        this.#timeOut(a === 1)
        break
      case Kind.Closed:
        this.#fail(() => errors.closed(this.#key))
        break
      case Kind.Renewed:
        this.#ttl = this.#renewal?.ttl ?? this.#ttl
        this.#endRenewal(null)
        break
      case Kind.RenewFailed: {
        const message = bridge.text(b)
        this.#endRenewal(() => errors.unavailable(a, message, this.#key))
        break
      }
      case Kind.AutoRenewed:
        this.#following?.renewed()
        if (this.#phase === Phase.Held) guarded(() => this.#observer?.renewed(this))
        break
    }
  }

  /**
   * Rejects the request once the client knows who holds the lock. `heldHere` says whether this
   * client holds the lock.
   */
  #timeOut(heldHere: boolean): void {
    // From here on, an abort has nothing to cancel.
    this.#phase = Phase.Released
    const { timeouts } = this.#owner
    const { wait, count } = this.#asked.among ?? { wait: this.#asked.wait, count: 1 }
    const tell = (contention: Contention) => this.#fail(() => errors.timedOut(this.#key, wait, count, contention))
    // Do not ask the store for a call that did not wait: callers often repeat it at once.
    if (wait > 0) timeouts.add(this.#key, wait, heldHere, tell)
    else tell(timeouts.guess(heldHere))
  }

  /** Rejects the request and releases its lease, which no caller has seen. */
  #giveBackUnseen(): void {
    this.#fail(() => errors.closed(this.#key))
    this.release().catch((error) => this.#owner.failed(error))
  }

  #handOver(): void {
    this.#handedOver = true
    this.#settle(this as never)
  }

  #settle(value: never): void {
    const resolve = this.#resolve
    this.#forget()
    resolve?.(value)
  }

  #fail(make: Make): void {
    const reject = this.#reject
    this.#forget()
    reject?.(make)
  }

  #forget(): void {
    this.#resolve = undefined
    this.#reject = undefined
    if (this.#asked.signal !== undefined) unwatch(this.#asked.signal, this)
  }

  /** `null`: it succeeded. */
  #endRenewal(failure: Make | null = () => this.#ended()): void {
    const renewal = this.#renewal
    if (renewal === undefined) return
    this.#renewal = undefined
    if (failure === null) renewal.resolve()
    else renewal.reject(failure)
  }

  #tellLoss(): void {
    // A rejected acquire told it, or the caller had given up before: nobody knows of this lease.
    if (!this.#handedOver) return
    this.#following?.lost(this.#lossTold())
    if (this.#controller === undefined && this.#observer === undefined && !this.#owner.hearsLosses()) return
    const error = this.#lossTold()
    this.#controller?.abort(error)
    // If the lease ran out, the owner already knows.
    if (!this.#runsOut) guarded(() => this.#owner.lost(this, error))
    guarded(() => this.#observer?.lost(this, error))
  }

  [onAbort](signal: AbortSignal): void {
    this.#fail(() => errors.aborted(this.#key, signal.reason))
    if (this.#phase === Phase.Pending) {
      this.#phase = Phase.Released
      bridge.cancel(this.#slot)
    } else {
      // Granted, but not handed over yet: the signal was aborted by what else came in with the grant.
      this.release().catch((error) => this.#owner.failed(error))
    }
  }

  toJSON(): object {
    const { key, fence, ttl, isHeld, remaining } = this
    return { key, fence, ttl, isHeld, remaining }
  }

  [inspect.custom](_depth: number, options: object): string {
    return `Lease ${inspect(this.toJSON(), options)}`
  }
}
