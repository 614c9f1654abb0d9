// A lease, from its request to its end. The request and the lease are one object, because programs
// acquire many leases.

import { inspect } from 'node:util'
import type * as api from '../../index'
import {
  abortedError,
  closedError,
  type GivenUp,
  lostError,
  lostErrorWithoutStack,
  releasedError,
  unavailableError,
} from '../diagnostics/errors'
import { attachTrace, type LeaseTrace, tracedMost } from '../diagnostics/tracing'
import { FIRST_LOSS, OWN_TTL, Phase, RecordKind } from '../native/protocol'
import { bridge } from '../native/records'
import { deliverRecord, noteRecord, type SlotOwner, slots } from '../native/slots'
import { type Abortable, onAbort } from '../util/abort'
import { checkTtl, inCall } from '../util/arguments'
import { ignore } from '../util/deferred'
import { defineDispose } from '../util/dispose'
import { callListener } from '../util/uncaught'
import { endAdoption, endSection, letExpire, remember, statusFor } from './lease-methods'
import type { LeaseObserver, LeaseOwner } from './lease-owner'
import type { LockRequest } from './lock-request'
import { LossSignal } from './loss-signal'
import { Renewals } from './renewals'
import { Settlement } from './settlement'
import { adoptedMost, type Ticket, writeTicket } from './ticket'
import { ticketTurn } from './ticket-turn'

export class Lease implements api.Lease, SlotOwner, Abortable {
  readonly #owner: LeaseOwner
  readonly #key: string
  #request: LockRequest
  readonly #observer: LeaseObserver | undefined
  #slot = 0
  #phase: number = Phase.Pending
  #ttl: number
  #fence = 0
  #token = ''
  /** Whether the caller has got the lease. */
  #callerHasIt = false
  readonly #settlement: Settlement
  #released: Promise<boolean> | undefined
  #renewals: Renewals | undefined
  #givenUp: GivenUp = 'released'
  /**
   * Whether the section under the lease has outlived its time. The lease then counts as lost and is
   * no longer renewed, but only the end of the section releases it.
   */
  #isOverdue = false
  /** Whether the lease comes from a ticket. */
  #isAdoption = false
  #loss: LossSignal | undefined
  /**
   * What is known of the loss, as native code describes it; `null` if that is nothing, and
   * `undefined` until native code has reported the loss.
   */
  #facts: string | null | undefined
  /** Set if a diagnostics channel has listeners. */
  #trace: LeaseTrace | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  private constructor(owner: LeaseOwner, key: string, request: LockRequest, observer: LeaseObserver | undefined) {
    this.#owner = owner
    this.#key = key
    this.#request = request
    this.#ttl = request.ttl
    this.#observer = observer
    this.#settlement = new Settlement(request, this)
  }

  /**
   * Resolves with the lease, or with `null` if another client holds the lock and `request` does not
   * wait.
   */
  static request(
    owner: LeaseOwner,
    key: string,
    request: LockRequest,
    observer?: LeaseObserver,
  ): Promise<Lease | null> {
    const { ttl, wait, maxHold, most, flags, trace, signal, began } = request
    if (signal?.aborted) throw abortedError(key, signal.reason, began)
    const lease = new Lease(owner, key, request, observer)
    return lease.#begin(bridge.acquire(owner.id, key, ttl, wait, maxHold, most, flags, trace))
  }

  /** Resolves with the lease that was detached into `ticket`. */
  static adopt(owner: LeaseOwner, ticket: Ticket, request: LockRequest): Promise<Lease> {
    const { ttl, maxHold, flags, trace, signal } = request
    if (signal?.aborted) throw abortedError(ticket.key, signal.reason)
    const lease = new Lease(owner, ticket.key, request, undefined)
    lease.#isAdoption = true
    return lease.#begin(bridge.adopt(owner.id, ticket, ttl, maxHold, flags, trace))
  }

  #begin<T>(slot: number): Promise<T> {
    this.#slot = slot
    slots[slot] = this
    return this.#settlement.begin()
  }

  get key(): string {
    return this.#key
  }

  get token(): string {
    // After the end, another operation may have the slot.
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
    return this.#isAlive && !this.#isOverdue
  }

  /** Whether the store still keeps other clients out. */
  get #isAlive(): boolean {
    return this.#phase === Phase.Held && bridge.isHeld(this.#slot)
  }

  get remaining(): number {
    return this.#phase === Phase.Held && !this.#isOverdue ? bridge.remaining(this.#slot) : 0
  }

  get signal(): AbortSignal {
    this.#loss ??= new LossSignal()
    return this.#loss.signal(() =>
      this.#refreshPhase() >= FIRST_LOSS || this.#isOverdue ? this.#reportedLoss() : undefined,
    )
  }

  assertHeld(): void {
    if (!this.isHeld) throw this.#endError()
  }

  async renew(ttl?: number): Promise<void> {
    if (ttl !== undefined) inCall('renew', () => checkTtl(ttl))
    if (ttl !== undefined) this.#token = this.token // for release(), if the lease is lost
    const renew = async () => {
      this.assertHeld()
      const ask = () => {
        // The drain may have ended while this call waited for another renewal.
        this.assertHeld()
        bridge.renew(this.#slot, ttl ?? OWN_TTL)
      }
      await this.#renewed(ask, ttl)
    }
    await (this.#trace?.renew(ttl ?? this.#ttl, renew) ?? renew())
  }

  async detach(ttl?: number): Promise<string> {
    if (ttl !== undefined) inCall('detach', () => checkTtl(ttl))
    const { key, token, fence } = this
    await this.#renewed(() => bridge.detach(this.#slot, ttl ?? OWN_TTL, false))
    const ticket = writeTicket({ key, token, fence, ttl: this.#ttl, most: this.#request.most })
    await ticketTurn()
    // If the process ends before this call, the engine releases the lease.
    bridge.seeTicket(token)
    return ticket
  }

  [remember](ttl: number): Promise<void> {
    return this.#renewed(() => bridge.detach(this.#slot, ttl, true))
  }

  /** Calls `ask` when no other renewal is pending, and waits for the answer. */
  #renewed(ask: () => void, ttl?: number): Promise<void> {
    this.#renewals ??= new Renewals()
    const askIfAlive = () => {
      if (!this.#isAlive) throw this.#endError()
      ask()
    }
    return this.#renewals.run(askIfAlive, ttl)
  }

  release(): Promise<boolean> {
    if (this.#released !== undefined) return this.#released
    const held = this.#phase === Phase.Held
    const release = held && (this.#trace?.release(() => this.#sendRelease()) ?? this.#sendRelease())
    // After detach() or renew(ttl) without an answer, the store may keep the lost lease for long.
    if (this.#phase >= FIRST_LOSS && this.#token !== '') bridge.releaseLost(this.#token)
    this.#released = release || Promise.resolve(false)
    // Call the observer last: it may run code of the user, which must see the lease as released.
    if (held && this.#callerHasIt) callListener(() => this.#observer?.released(this))
    return this.#released
  }

  [endSection](): this {
    if (this.#phase === Phase.Held) this.#givenUp = 'section'
    return this
  }

  #sendRelease(): Promise<boolean> {
    bridge.release(this.#slot)
    this.#phase = Phase.Released
    return this.#settlement.promise()
  }

  static {
    defineDispose(Lease.prototype, (lease) => lease.release().catch((error) => lease.#owner.failed(error)))
  }

  /** Returns the phase of the lease. Asks native code while the lease is held. */
  #refreshPhase(): number {
    if (this.#phase === Phase.Held) {
      const phase = bridge.phase(this.#slot)
      if (phase >= Phase.Released) this.#phase = phase
    }
    return this.#phase
  }

  /** Returns why the lease is not held. */
  #endError(): api.LockError {
    const phase = this.#refreshPhase()
    if (this.#isOverdue && phase !== Phase.Released) return this.#reportedLoss()
    return phase === Phase.Released ? releasedError(this.#key, this.#givenUp) : this.#lossError(phase)
  }

  #lossError(phase: number, make = lostError): api.LockLostError {
    // Native code may not have reported the loss yet. After the last record, another operation may
    // have the slot.
    const isOurs = this.#facts === undefined && slots[this.#slot] === this
    const facts = isOurs ? bridge.loss(this.#slot) : (this.#facts ?? null)
    const { key, ttl } = this
    const { maxStall, identity } = this.#owner
    return make({ key, phase, facts, ttl, request: this.#request, store: identity.store, maxStall })
  }

  #reportedLoss(make = () => this.#lossError(this.#phase, lostErrorWithoutStack)): api.LockLostError {
    this.#loss ??= new LossSignal()
    return this.#loss.error(make)
  }

  [statusFor](client: number): 'waiting' | 'held' | 'other' | undefined {
    if (this.#owner.id !== client) return undefined
    if (this.#phase === Phase.Pending && this.#request.wait > 0) return 'waiting'
    return this.#isAlive ? 'held' : 'other'
  }

  [letExpire](): void {
    if (this.#isOverdue || this.#refreshPhase() !== Phase.Held || !this.#callerHasIt) return
    const error = this.#reportedLoss(() => this.#lossError(Phase.Closed))
    this.#isOverdue = true
    bridge.stopRenewing(this.#slot)
    this.#trace?.lost(error)
    this.#loss?.abort(error)
    callListener(() => this.#owner.lost(this, error))
  }

  get [tracedMost](): number {
    return this.#request.most
  }

  [attachTrace](trace: LeaseTrace): void {
    this.#trace = trace
    // The lease may have ended since its grant.
    const phase = this.#refreshPhase()
    if (phase >= FIRST_LOSS) trace.lost(this.#reportedLoss())
    else if (phase === Phase.Released) trace.endedByHolder('released')
  }

  [noteRecord](kind: number, a: number, b: number): void {
    if (kind === RecordKind.Acquired) {
      if (this.#phase !== Phase.Pending) return
      this.#phase = Phase.Held
      this.#fence = a
    } else if (kind === RecordKind.Adopted) {
      this.#ttl = a
      this.#request = { ...this.#request, most: adoptedMost(this.#request.most, b === 1) }
    } else if (kind === RecordKind.Lost) {
      this.#phase = a
      this.#facts = b === 0 ? null : bridge.text(b - 1)
    } else if (kind === RecordKind.Released && a === 0) {
      this.#phase = Phase.Missing
    } else if (kind === RecordKind.Detached) {
      this.#phase = Phase.Released
      if (this.#givenUp === 'released') this.#givenUp = 'detached'
    }
  }

  [deliverRecord](kind: number, a: number, b: number): void {
    switch (kind) {
      case RecordKind.Acquired:
        // User code, called by an earlier record, has aborted the request and released the lease.
        if (this.#released !== undefined) break
        // If the lease was lost while this thread was blocked, the caller must not start work.
        if (this.#phase === Phase.Held && this.#owner.isDrained) this.#giveUp(() => closedError(this.#key))
        else if (this.#phase === Phase.Held) {
          this.#callerHasIt = true
          this.#settlement.resolve(this)
        } else this.#settlement.reject(() => (this.#phase === Phase.Closed ? closedError(this.#key) : this.#endError()))
        break
      case RecordKind.Released:
        this.#settlement.resolve(a === 1)
        this.#renewals?.end(() => this.#endError())
        break
      case RecordKind.Detached:
        this.#renewals?.end(null)
        // A release that was called after detach() came too late.
        this.#settlement.resolve(false)
        this.#trace?.endedByHolder('detached')
        if (this.#released === undefined) callListener(() => this.#observer?.released(this))
        break
      case RecordKind.Lost:
        // There is nothing to adopt, or nothing left to release.
        if (this.#released === undefined) this.#settlement.reject(() => this.#endError())
        else this.#settlement.resolve(false)
        this.#renewals?.end(() => this.#endError())
        this.#reportLoss()
        break
      case RecordKind.Failed: {
        const message = bridge.text(b)
        // A caller that does not await the release must not get an unhandled rejection.
        this.#released?.catch(ignore)
        this.#settlement.reject(() => unavailableError(a, message, this.#key))
        this.#renewals?.end(() => this.#endError())
        break
      }
      case RecordKind.Busy:
        this.#settlement.resolve(null)
        break
      case RecordKind.TimedOut:
        // From here on, an abort has nothing to cancel.
        this.#phase = Phase.Released
        this.#owner.timeouts.end(this.#key, this.#request, a === 1, (makeError) => this.#settlement.reject(makeError))
        break
      case RecordKind.Closed:
        this.#settlement.reject(() => closedError(this.#key))
        break
      case RecordKind.Renewed:
        this.#ttl = this.#renewals?.ttl ?? this.#ttl
        this.#renewals?.end(null)
        break
      case RecordKind.RenewFailed: {
        const message = bridge.text(b)
        this.#renewals?.end(() => unavailableError(a, message, this.#key))
        break
      }
      case RecordKind.AutoRenewed:
        this.#trace?.renewed()
        if (this.#phase === Phase.Held) callListener(() => this.#observer?.renewed(this))
        break
    }
  }

  /** Rejects the request, and gives up the lease that no caller has seen, if it got one. */
  #giveUp(makeError: () => api.LockError): void {
    this.#settlement.reject(makeError)
    // If an adoption has succeeded, cancelling it gives the lease back to its ticket.
    if (this.#phase === Phase.Pending || (this.#phase === Phase.Held && this.#isAdoption)) {
      this.#phase = Phase.Released
      bridge.cancel(this.#slot)
    } else this.release().catch((error) => this.#owner.failed(error))
  }

  [endAdoption](client: number): void {
    const isUnsettled = this.#phase <= Phase.Held && !this.#callerHasIt
    if (this.#isAdoption && isUnsettled && this.#owner.id === client) this.#giveUp(() => closedError(this.#key))
  }

  #reportLoss(): void {
    // The acquire has rejected, or the caller has given up, so no code knows of this lease.
    if (!this.#callerHasIt) return
    this.#trace?.lost(this.#reportedLoss())
    if (!this.#loss?.isWatched && this.#observer === undefined && !this.#owner.hasLossListener()) return
    const error = this.#reportedLoss()
    this.#loss?.abort(error)
    // If the section was overdue, letExpire() has already told the owner.
    if (!this.#isOverdue) callListener(() => this.#owner.lost(this, error))
    callListener(() => this.#observer?.lost(this, error))
  }

  [onAbort](signal: AbortSignal): void {
    // The lease may be granted already: an earlier record of the batch may have run the abort.
    this.#giveUp(() => abortedError(this.#key, signal.reason, this.#settlement.began))
  }

  toJSON(): object {
    const { key, fence, ttl, isHeld, remaining } = this
    return { key, fence, ttl, isHeld, remaining }
  }

  [inspect.custom](_depth: number, options: object): string {
    return `Lease ${inspect(this.toJSON(), options)}`
  }
}
