// Leases of several keys that are held together: all of them, or none.

import { inspect } from 'node:util'
import type * as api from '../../index'
import { abortedError, closedError, LockLostError } from '../diagnostics/errors'
import { Flag } from '../native/protocol'
import { type Abortable, addAbortable, onAbort, removeAbortable } from '../util/abort'
import { checkTtl, inCall } from '../util/arguments'
import { now } from '../util/clock'
import { ignore } from '../util/deferred'
import { defineDispose } from '../util/dispose'
import { Lease } from './lease'
import { endSection } from './lease-methods'
import type { LeaseOwner } from './lease-owner'
import type { LockRequest } from './lock-request'

export class MultiLease implements api.MultiLease, Abortable {
  readonly #owner: LeaseOwner
  readonly #keys: readonly string[]
  /** Whether a section runs under the leases. */
  readonly #isSection: boolean
  #leases: readonly Lease[] = []
  #fences: Readonly<Record<string, number>> = {}
  /** Whether the caller has got the leases. */
  #callerHasThem = false
  /** Ends the wait for the next key when the call has failed or was aborted. */
  readonly #waiting = new AbortController()
  #loss: api.LockLostError | undefined
  #released: Promise<boolean> | undefined
  #controller: AbortController | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  private constructor(owner: LeaseOwner, keys: readonly string[], { flags }: LockRequest) {
    this.#owner = owner
    this.#isSection = (flags & Flag.Section) !== 0
    this.#keys = Object.freeze(keys)
  }

  /**
   * Resolves with the leases of `keys`. If another lease holds one of them and `request` does not
   * wait, resolves with `null`, and passes that key to `busy`. All calls acquire their keys in the
   * same order, so no two calls wait for each other.
   */
  static async request(
    owner: LeaseOwner,
    keys: readonly string[],
    request: LockRequest,
    busy?: (key: string) => void,
  ): Promise<MultiLease | null> {
    const { signal } = request
    const multi = new MultiLease(owner, keys, request)
    if (signal?.aborted) throw abortedError(keys[0] as string, signal.reason, request.began)
    if (signal !== undefined) addAbortable(signal, multi)
    const leases: Lease[] = []
    try {
      const all = await multi.#collect(request, leases, busy)
      if (all) return multi.#giveToCaller(leases)
      await releaseAll(owner, leases)
      return null
    } catch (error) {
      const given = releaseAll(owner, leases)
      // An abort ends the call at once. Any other error waits until the leases are released.
      if (!signal?.aborted) await given
      throw error
    } finally {
      if (signal !== undefined) removeAbortable(signal, multi)
    }
  }

  /**
   * Acquires one lease after the other, into `leases`. Resolves with true if it got all leases; if
   * not, passes the held key to `busy`.
   */
  async #collect(request: LockRequest, leases: Lease[], busy?: (key: string) => void): Promise<boolean> {
    const patient = request.wait >= 0
    const { began = now() } = request
    const end = now() + request.wait
    const group = { count: this.#keys.length, wait: request.wait }
    for (const key of this.#keys) {
      // Acquire a free key even when the time is over.
      const wait = patient ? Math.max(0, Math.ceil(end - now())) : request.wait
      try {
        const one: LockRequest = { ...request, wait, signal: this.#waiting.signal, group, began }
        const lease = await Lease.request(this.#ownerOfEach, key, one)
        if (lease === null) {
          busy?.(key)
          return false
        }
        leases.push(lease)
      } catch (error) {
        if (this.#loss !== undefined) throw this.#loss.reason === 'closed' ? closedError(key) : this.#loss
        throw error
      }
    }
    // The first lease may have ended while the call waited for the last one.
    for (const lease of leases) lease.assertHeld()
    return true
  }

  #giveToCaller(leases: readonly Lease[]): this {
    this.#leases = Object.freeze(leases)
    this.#fences = Object.freeze(Object.fromEntries(leases.map(({ key, fence }) => [key, fence])))
    this.#callerHasThem = true
    return this
  }

  /** The owner of each single lease. It is told of a loss before the user is. */
  get #ownerOfEach(): LeaseOwner {
    const owner = this.#owner
    return {
      id: owner.id,
      maxStall: owner.maxStall,
      timeouts: owner.timeouts,
      get identity() {
        return owner.identity
      },
      get isDrained() {
        return owner.isDrained
      },
      hasLossListener: () => true,
      lost: (lease, error) => {
        // Leases that the caller does not have report no loss, as with a single lease.
        const told = this.#callerHasThem
        this.#lose(error)
        if (told) owner.lost(lease, error)
      },
      failed: (error) => owner.failed(error),
    }
  }

  #lose(error: api.LockLostError): void {
    if (this.#loss !== undefined) return
    this.#loss = error
    this.#waiting.abort(error)
    this.#controller?.abort(error)
    // Without the lost lease, the others are of no use to their holder, but other clients may wait
    // for them. If a section holds them, it releases them when it ends.
    if (!this.#isSection) releaseAll(this.#owner, this.#leases)
  }

  [onAbort](signal: AbortSignal): void {
    this.#waiting.abort(signal.reason)
  }

  get keys(): readonly string[] {
    return this.#keys
  }

  get fences(): Readonly<Record<string, number>> {
    return this.#fences
  }

  get leases(): readonly Lease[] {
    return this.#leases
  }

  get isHeld(): boolean {
    return this.#leases.every((lease) => lease.isHeld)
  }

  get remaining(): number {
    return Math.min(...this.#leases.map((lease) => lease.remaining))
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      const lost = this.#leases.find((lease) => lease.signal.aborted)
      if (lost !== undefined) this.#controller.abort(this.#loss ?? lost.signal.reason)
    }
    return this.#controller.signal
  }

  assertHeld(): void {
    if (!this.isHeld) throw this.#endError()
  }

  /**
   * Returns why the leases are not held. Prefers the loss of one to the release of the others that
   * followed it.
   */
  #endError(): unknown {
    let ended: unknown
    for (const lease of this.#leases) {
      try {
        lease.assertHeld()
      } catch (error) {
        if (error instanceof LockLostError) return error
        ended ??= error
      }
    }
    return ended
  }

  async renew(ttl?: number): Promise<void> {
    if (ttl !== undefined) inCall('renew', () => checkTtl(ttl))
    this.assertHeld()
    const outcomes = await Promise.allSettled(this.#leases.map((lease) => lease.renew(ttl)))
    const failed = outcomes.find((outcome) => outcome.status === 'rejected')
    if (failed === undefined) return
    this.assertHeld()
    throw failed.reason
  }

  release(): Promise<boolean> {
    if (this.#released === undefined) {
      this.#released = this.#release()
      // A caller that does not await the release must not get an unhandled rejection.
      this.#released.catch(ignore)
    }
    return this.#released
  }

  [endSection](): this {
    for (const lease of this.#leases) lease[endSection]()
    return this
  }

  async #release(): Promise<boolean> {
    const outcomes = await Promise.allSettled(this.#leases.map((lease) => lease.release()))
    const failed = outcomes.find((outcome) => outcome.status === 'rejected')
    if (failed !== undefined) throw failed.reason
    return outcomes.every((outcome) => outcome.status === 'fulfilled' && outcome.value)
  }

  static {
    defineDispose(MultiLease.prototype, (multi) => multi.release().catch((error) => multi.#owner.failed(error)))
  }

  toJSON(): object {
    const { keys, fences, isHeld, remaining } = this
    return { keys, fences, isHeld, remaining }
  }

  [inspect.custom](_depth: number, options: object): string {
    return `MultiLease ${inspect(this.toJSON(), options)}`
  }
}

/** Resolves when the leases that are still held are released; never rejects. */
async function releaseAll(owner: LeaseOwner, leases: readonly Lease[]): Promise<void> {
  await Promise.all(leases.map((lease) => lease.release().catch((error) => owner.failed(error))))
}
