// Leases of several keys, held as one: all of them, or none.

import { inspect } from 'node:util'
import type * as api from '../index'
import { type Abortable, onAbort, unwatch, watch } from './abort'
import { checkTtl } from './arguments'
import { now } from './clock'
import { defineDispose } from './dispose'
import * as errors from './errors'
import { Lease, type Owner } from './lease'
import { Flag } from './native'
import type { Asked } from './options'
import { ignore } from './promise'

export class MultiLease implements api.MultiLease, Abortable {
  readonly #owner: Owner
  readonly #keys: readonly string[]
  /** Whether a section runs under it. */
  readonly #isSection: boolean
  #leases: readonly Lease[] = []
  #fences: Readonly<Record<string, number>> = {}
  /** Whether whoever asked for it has it. */
  #handedOver = false
  /** Ends the waiting for one of them, when there is no use in it any more. */
  readonly #waiting = new AbortController()
  #loss: api.LockLostError | undefined
  #released: Promise<boolean> | undefined
  #controller: AbortController | undefined
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  private constructor(owner: Owner, keys: readonly string[], { flags }: Asked) {
    this.#owner = owner
    this.#isSection = (flags & Flag.Section) !== 0
    this.#keys = Object.freeze(keys)
  }

  /**
   * Resolves with the leases of `keys`. If another lease holds one of them and `asked` does not
   * wait, resolves with `null`, and passes that key to `busy`. All calls acquire their keys in the
   * same order, so no two calls wait for each other.
   */
  static async request(
    owner: Owner,
    keys: readonly string[],
    asked: Asked,
    busy?: (key: string) => void,
  ): Promise<MultiLease | null> {
    const { signal } = asked
    const multi = new MultiLease(owner, keys, asked)
    if (signal?.aborted) throw errors.aborted(keys[0] as string, signal.reason)
    if (signal !== undefined) watch(signal, multi)
    const leases: Lease[] = []
    try {
      const all = await multi.#collect(asked, leases, busy)
      if (all) return multi.#handOver(leases)
      await giveBack(owner, leases)
      return null
    } catch (error) {
      const given = giveBack(owner, leases)
      // An abort ends the call at once; any other error can wait until the others may have what was got.
      if (!signal?.aborted) await given
      throw error
    } finally {
      if (signal !== undefined) unwatch(signal, multi)
    }
  }

  /**
   * Acquires one lease after the other, into `leases`. Resolves with true if it got all leases; if
   * not, passes the held key to `busy`.
   */
  async #collect(asked: Asked, leases: Lease[], busy?: (key: string) => void): Promise<boolean> {
    const patient = asked.wait >= 0
    const end = now() + asked.wait
    const among = { count: this.#keys.length, wait: asked.wait }
    for (const key of this.#keys) {
      // A key that is free is had even when the time is over.
      const wait = patient ? Math.max(0, Math.ceil(end - now())) : asked.wait
      try {
        const one = { ...asked, wait, signal: this.#waiting.signal, among }
        const lease = await Lease.request(this.#ownerOfOne, key, one)
        if (lease === null) {
          busy?.(key)
          return false
        }
        leases.push(lease)
      } catch (error) {
        if (this.#loss !== undefined) throw this.#loss.reason === 'closed' ? errors.closed(key) : this.#loss
        throw error
      }
    }
    // The first may have run out while the last was waited for.
    for (const lease of leases) lease.assertHeld()
    return true
  }

  #handOver(leases: readonly Lease[]): this {
    this.#leases = Object.freeze(leases)
    this.#fences = Object.freeze(Object.fromEntries(leases.map(({ key, fence }) => [key, fence])))
    this.#handedOver = true
    return this
  }

  /** Who the owner is to each of the leases: one that hears of losses before the user does. */
  get #ownerOfOne(): Owner {
    const owner = this.#owner
    return {
      id: owner.id,
      timeouts: owner.timeouts,
      get isDrained() {
        return owner.isDrained
      },
      hearsLosses: () => true,
      lost: (lease, error) => {
        // As with a single lease: what nobody has, nobody loses.
        const told = this.#handedOver
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
    if (!this.#isSection) giveBack(this.#owner, this.#leases)
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
    if (!this.isHeld) throw this.#ended()
  }

  /** Why it is not held: the loss of one rather than the release of the others because of it. */
  #ended(): unknown {
    let ended: unknown
    for (const lease of this.#leases) {
      try {
        lease.assertHeld()
      } catch (error) {
        if (error instanceof errors.LockLostError) return error
        ended ??= error
      }
    }
    return ended
  }

  async renew(ttl?: number): Promise<void> {
    if (ttl !== undefined) checkTtl(ttl)
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
      // Whoever does not wait for the release shall not be ended by its failure.
      this.#released.catch(ignore)
    }
    return this.#released
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

/** Resolves when the leases that are held still are given back; never rejects. */
async function giveBack(owner: Owner, leases: readonly Lease[]): Promise<void> {
  await Promise.all(leases.map((lease) => lease.release().catch((error) => owner.failed(error))))
}
