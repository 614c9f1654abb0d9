// What is asked of native code. Questions and orders are gathered until the code that is running has had its turn and
// cross together: a crossing costs more than what one of them does on the other side.

import { setImmediate } from 'node:timers'
import type { ClientConfig, NativeBridge } from './native'

const Operation = {
  Acquire: 0,
  Release: 1,
  Renew: 2,
  Cancel: 3,
  Ping: 4,
  Inspect: 5,
  CloseClient: 6,
  Adopt: 7,
  Detach: 8,
  Diagnose: 9,
  Break: 10,
  List: 11,
  DrainClient: 12,
  StopRenewing: 13,
} as const

/** Added to the code of an acquire or an adoption that is followed by a trace. */
const TRACED = 64

/** The number that no client has: native code counts clients from 1. */
const NOBODY = 0

/** How many numbers an operation has: its code, its slot, and up to five more. */
const LENGTH = 7
const ROOM = 512

// A test that lets time stand still must not stop what the library does behind the scenes. So these are not the globals, which
// fake clocks replace, some of them before this is loaded, and queueMicrotask() with the timers. (Sinon's replaces what
// `node:timers` has as well, and so has to be installed later.)
const later = setImmediate
const settled = Promise.resolve()
const soon = (callback: () => void): void => void settled.then(callback)

/** What a lease is known by at its store. */
interface Adoptable {
  readonly key: string
  readonly token: string
  readonly fence: number
}

export class Bridge {
  readonly #native: NativeBridge
  /** Takes out what has been settled. */
  readonly #drain: () => void
  readonly #operations = new Float64Array(LENGTH * ROOM)
  #count = 0
  /** The keys, tokens and traces of the gathered operations that have some, each with a NUL behind it; none has one in it. */
  #keys = ''
  /** Slots that were used and are not any more. */
  readonly #free: number[] = []
  #slots = 0
  /** The slots that get one more record than others; see {@link abandon}. */
  readonly #abandoned = new Set<number>()
  /** Whether what native code may have held back is about to be sent. */
  #flushing = false

  constructor(native: NativeBridge, drain: () => void) {
    this.#native = native
    this.#drain = drain
  }

  /** Returns true if `name` (a prefix and a key) is a side key of a lock. */
  isSideKey(name: string): boolean {
    return this.#native.isSideKey(name)
  }

  /**
   * Connects to nothing yet. Throws if the store's URL is malformed. The slot -> Breaker, now and then, and Done when the
   * client is closed.
   */
  openClient(options: ClientConfig): { client: number; watch: number } {
    const watch = this.#slot()
    try {
      return { client: this.#native.openClient(Object.assign(Object.create(null), options, { watch })), watch }
    } catch (error) {
      this.free(watch)
      throw error
    }
  }

  /**
   * Refuses the client's waiting and later acquires, and ends those of its leases that belong to no
   * section.
   */
  drainClient(client: number): void {
    this.#push(Operation.DrainClient, 0, client, 0, 0, 0, 0)
  }

  /** -> Done */
  closeClient(client: number): number {
    return this.#begin(Operation.CloseClient, client, 0, 0, 0, 0)
  }

  /** -> Done | Failed */
  ping(client: number): number {
    return this.#begin(Operation.Ping, client, 0, 0, 0, 0)
  }

  /** -> Diagnosed | Failed */
  diagnose(client: number, ttl: number): number {
    return this.#begin(Operation.Diagnose, client, ttl, 0, 0, 0)
  }

  /** -> Inspected | Failed */
  inspect(client: number, key: string): number {
    this.#keys += `${key}\0`
    return this.#begin(Operation.Inspect, client, 0, 0, 0, 0)
  }

  /**
   * Lets the process end although the question in `slot` has no answer. -> Closed, before or after
   * the answer. The slot is free after both.
   */
  abandon(slot: number): void {
    this.#abandoned.add(slot)
    // Native code answers at once for a client that does not exist. Then no promise waits for the
    // slot.
    this.#push(Operation.Ping, slot, NOBODY, 0, 0, 0, 0)
  }

  /** -> Released | Failed */
  breakLock(client: number, key: string): number {
    this.#keys += `${key}\0`
    return this.#begin(Operation.Break, client, 0, 0, 0, 0)
  }

  /** -> Listed | Failed */
  list(client: number, pattern: string, limit: number): number {
    this.#keys += `${pattern}\0`
    return this.#begin(Operation.List, client, limit, 0, 0, 0)
  }

  /**
   * -> Acquired, and then the slot is the lease's | Busy | TimedOut | Failed | Closed | Cancelled.
   * `wait` -1 is not at all, `maxHold` 0 is for ever, `most` 0 is exclusive. `trace`: see {@link Asked.trace}.
   */
  acquire(
    client: number,
    key: string,
    ttl: number,
    wait: number,
    maxHold: number,
    most: number,
    flags: number,
    trace: string | undefined,
  ): number {
    this.#keys += `${key}\0`
    return this.#begin(Operation.Acquire + flags + this.#traced(trace), client, ttl, wait, maxHold, most)
  }

  /** -> Acquired, and then the slot is the lease's | Lost | Failed | Closed | Cancelled. `maxHold` 0 is for ever. */
  adopt(
    client: number,
    ticket: Adoptable,
    ttl: number,
    maxHold: number,
    flags: number,
    trace: string | undefined,
  ): number {
    const { key, token, fence } = ticket
    this.#keys += `${key}\0${token}\0`
    return this.#begin(Operation.Adopt + flags + this.#traced(trace), client, ttl, maxHold, fence, 0)
  }

  /** What is added to the code of an operation whose key was written just now. */
  #traced(trace: string | undefined): number {
    if (trace === undefined) return 0
    this.#keys += `${trace}\0`
    return TRACED
  }

  /** -> the slot's last record, of whatever kind; a grant that crosses this is given back by native code. */
  cancel(slot: number): void {
    this.#push(Operation.Cancel, slot, 0, 0, 0, 0, 0)
  }

  /** -> Renewed | RenewFailed | Lost. One at a time for each lease. `ttl` 0 is the lease's own. */
  renew(slot: number, ttl: number): void {
    this.#push(Operation.Renew, slot, ttl, 0, 0, 0, 0)
  }

  /** -> Detached | RenewFailed, and it stays held here | Lost. None beside it or a renewal. `ttl` 0 is the lease's own. */
  detach(slot: number, ttl: number): void {
    this.#push(Operation.Detach, slot, ttl, 0, 0, 0, 0)
  }

  /** Stops renewing the lease. It can still be released and detached. */
  stopRenewing(slot: number): void {
    this.#push(Operation.StopRenewing, slot, 0, 0, 0, 0, 0)
  }

  /** -> Released | Failed | Lost */
  release(slot: number): void {
    this.#push(Operation.Release, slot, 0, 0, 0, 0, 0)
  }

  isHeld(slot: number): boolean {
    return this.#native.isHeld(slot)
  }

  remaining(slot: number): number {
    return this.#native.remaining(slot)
  }

  phase(slot: number): number {
    return this.#native.phase(slot)
  }

  /** How the lease's last renewal failed: what {@link lost} in errors.ts takes. */
  failure(slot: number): string | null {
    return this.#native.failure(slot)
  }

  token(slot: number): string {
    return this.#native.token(slot)
  }

  stats(client: number): string {
    return this.#native.stats(client)
  }

  drain(records: Float64Array): number {
    return this.#native.drain(records)
  }

  /** What a record of the latest drain has to say in words. */
  text(index: number): string {
    return this.#native.text(index)
  }

  hold(): void {
    this.#native.hold()
  }

  unhold(): void {
    this.#native.unhold()
  }

  /**
   * Tells the engine that JavaScript has ended. The engine still carries out releases and renewals
   * that were asked for. It grants no acquire any more, and `maxStall` does not apply to the
   * leases.
   */
  excuse(): void {
    this.#cross()
    this.#native.excuse()
  }

  /**
   * Lets the leases of this environment be released when the process ends. Returns false if the
   * system does not support that.
   */
  releaseAtEnd(): boolean {
    return this.#native.releaseAtEnd()
  }

  /** Blocks until this environment's leases are released, at most `timeout` ms. */
  releaseAll(timeout: number): void {
    this.#cross()
    this.#native.releaseAll(timeout)
  }

  /** The slot's last record was told. */
  free(slot: number): void {
    if (!this.#abandoned.delete(slot)) this.#free.push(slot)
  }

  #slot(): number {
    return this.#free.pop() ?? this.#slots++
  }

  #begin(code: number, a: number, b: number, c: number, d: number, e: number): number {
    const slot = this.#slot()
    this.#push(code, slot, a, b, c, d, e)
    return slot
  }

  #push(code: number, slot: number, a: number, b: number, c: number, d: number, e: number): void {
    if (this.#count === 0) soon(this.#submit)
    const operations = this.#operations
    const at = this.#count * LENGTH
    operations[at] = code
    operations[at + 1] = slot
    operations[at + 2] = a
    operations[at + 3] = b
    operations[at + 4] = c
    operations[at + 5] = d
    operations[at + 6] = e
    // What is handed on by that is not told before whoever asks now has its promise.
    if (++this.#count === ROOM && this.#cross()) soon(this.#handedOn)
  }

  readonly #submit = (): void => {
    if (this.#count !== 0 && this.#cross()) this.#handedOn()
  }

  readonly #flush = (): void => {
    this.#flushing = false
    if (this.#cross()) this.#handedOn()
  }

  readonly #handedOn = (): void => {
    // What was held back for the sake of quick hand-offs leaves when they are over, or with the next that is not one.
    if (!this.#flushing) {
      this.#flushing = true
      later(this.#flush)
    }
    this.#drain()
  }

  /** Says whether there is something to drain. */
  #cross(): boolean {
    const count = this.#count
    const keys = this.#keys
    this.#count = 0
    this.#keys = ''
    return this.#native.submit(this.#operations, count, keys)
  }
}
