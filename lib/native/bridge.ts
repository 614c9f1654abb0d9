// The typed calls of native code. A read crosses at once. Operations are gathered, and cross
// together (operations.ts).
//
// The comments name the records that follow an operation: `-> Done | Failed` is one of these two.

import { setImmediate } from '../util/real-timers'
import type { ClientConfig, NativeBridge } from './addon'
import { OperationBatch } from './operations'
import { NO_CLIENT, Operation } from './protocol'
import { SlotNumbers } from './slots'

/** What identifies a lease at its store. */
interface Adoptable {
  readonly key: string
  readonly token: string
  readonly fence: number
}

export class Bridge {
  readonly #native: NativeBridge
  readonly #drain: () => void
  readonly #batch: OperationBatch
  readonly #slots = new SlotNumbers()
  #holds = 0
  /** Called when the bridge closes; `undefined` while it is closed. */
  #onClose: (() => void) | undefined
  /** Whether a call that may close the bridge is pending. */
  #isClosing = false

  /**
   * `drain` takes the records of settled operations out of native code. Native code also calls it
   * when there are records.
   */
  constructor(native: NativeBridge, drain: () => void) {
    this.#native = native
    this.#drain = drain
    this.#batch = new OperationBatch(native, drain)
  }

  /**
   * Opens the bridge, unless it is open. Calls `onOpen` then, and calls the function that `onOpen`
   * returns when the bridge closes. The bridge closes when no client is open, no operation is
   * pending, and the engine has released all leases. From then on, native code and the process do
   * not refer to this copy of the package, so the copy can be collected.
   */
  open(onOpen: () => () => void): void {
    if (this.#onClose !== undefined) return
    this.#native.open(this.#drain)
    this.#onClose = onOpen()
  }

  /** Whether nothing uses the bridge. Each open client has a slot. */
  get #isUnused(): boolean {
    return this.#slots.areAllFree && this.#holds === 0
  }

  /**
   * Closes the bridge in the next turn of the event loop if nothing uses it then. A program that
   * opens the next client at once, as a loop does, uses the open bridge: opening a bridge takes as
   * long as opening a client.
   */
  #closeIfUnused(): void {
    if (!this.#isUnused || this.#isClosing || this.#onClose === undefined) return
    this.#isClosing = true
    setImmediate(() => {
      this.#isClosing = false
      const onClose = this.#onClose
      if (!this.#isUnused || onClose === undefined) return
      this.#onClose = undefined
      this.#native.close()
      onClose()
    })
  }

  /** Returns true if `name` (a prefix and a key) is a side key of a lock. */
  isSideKey(name: string): boolean {
    return this.#native.isSideKey(name)
  }

  /**
   * Opens a client, which connects later. Throws if the store's URL is malformed. The slot `watch`
   * gets Breaker and Availability records, and Done when the client is closed and all its leases
   * are released.
   */
  openClient(options: ClientConfig): { client: number; watch: number } {
    const watch = this.#slots.next()
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
    this.#batch.push(Operation.DrainClient, 0, client, 0, 0, 0, 0)
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
    this.#batch.addText(key)
    return this.#begin(Operation.Inspect, client, 0, 0, 0, 0)
  }

  /**
   * Lets the process end although the query in `slot` has no answer. -> Closed, before or after the
   * answer. The slot is free after both.
   */
  abandon(slot: number): void {
    this.#slots.abandon(slot)
    // Native code answers at once for a client that does not exist. Then no promise waits for the
    // slot.
    this.#batch.push(Operation.Ping, slot, NO_CLIENT, 0, 0, 0, 0)
  }

  /** -> Released | Failed */
  breakLock(client: number, key: string): number {
    this.#batch.addText(key)
    return this.#begin(Operation.Break, client, 0, 0, 0, 0)
  }

  /** -> Listed | Failed */
  list(client: number, pattern: string, limit: number): number {
    this.#batch.addText(pattern)
    return this.#begin(Operation.List, client, limit, 0, 0, 0)
  }

  /**
   * -> Acquired, and then the slot is the lease's | Busy | TimedOut | Failed | Closed | Cancelled.
   * The parameters are those of `LockRequest`.
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
    this.#batch.addText(key)
    return this.#begin(Operation.Acquire + flags + this.#batch.addTrace(trace), client, ttl, wait, maxHold, most)
  }

  /**
   * -> Acquired, and then the slot is the lease's | Lost | Failed | Closed | Cancelled. `maxHold`
   * as in `LockRequest`.
   */
  adopt(
    client: number,
    ticket: Adoptable,
    ttl: number,
    maxHold: number,
    flags: number,
    trace: string | undefined,
  ): number {
    const { key, token, fence } = ticket
    this.#batch.addText(key)
    this.#batch.addText(token)
    return this.#begin(Operation.Adopt + flags + this.#batch.addTrace(trace), client, ttl, maxHold, fence, 0)
  }

  /** -> the slot's last record, of any kind. Native code releases a grant that crosses this. */
  cancel(slot: number): void {
    this.#batch.push(Operation.Cancel, slot, 0, 0, 0, 0, 0)
  }

  /** -> Renewed | RenewFailed | Lost. One at a time for each lease. `ttl`: see `OWN_TTL`. */
  renew(slot: number, ttl: number): void {
    this.#batch.push(Operation.Renew, slot, ttl, 0, 0, 0, 0)
  }

  /**
   * -> Detached | RenewFailed, and the lease stays held | Lost. Not while another detach or renewal
   * of the lease is pending. `ttl`: see `OWN_TTL`. If `remembers` is true, the end of the client
   * does not release the lease.
   */
  detach(slot: number, ttl: number, remembers: boolean): void {
    this.#batch.push(Operation.Detach, slot, ttl, Number(remembers), 0, 0, 0)
  }

  /** Stops renewing the lease. It can still be released and detached. */
  stopRenewing(slot: number): void {
    this.#batch.push(Operation.StopRenewing, slot, 0, 0, 0, 0, 0)
  }

  /** -> Released | Failed | Lost */
  release(slot: number): void {
    this.#batch.push(Operation.Release, slot, 0, 0, 0, 0, 0)
  }

  /**
   * Notes that the holder has released the lost lease of `token`. Native code then releases at once
   * what a failed `detach` or `renew` may have left at the store. Otherwise, it would wait for the
   * end of the lease.
   */
  releaseLost(token: string): void {
    this.#batch.addText(token)
    this.#batch.push(Operation.ReleaseLost, 0, 0, 0, 0, 0, 0)
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

  /** Returns what is known of the loss of the lease, for lostError() in diagnostics/errors.ts. */
  loss(slot: number): string | null {
    return this.#native.loss(slot)
  }

  /** Returns the token of a lease. The slot must be the lease's. */
  token(slot: number): string {
    return this.#native.token(slot) as string
  }

  /**
   * Notes that the caller of a detachment has its ticket. If the thread ends before, the engine
   * releases the lease. Crosses at once: the thread may end before the next batch of operations.
   */
  seeTicket(token: string): void {
    this.#native.seeTicket(token)
  }

  /** Returns the counters of an open client, as JSON. */
  stats(client: number): string {
    return this.#native.stats(client) as string
  }

  drain(records: Float64Array): number {
    return this.#native.drain(records)
  }

  /** Returns a text of the latest drain by its index. */
  text(index: number): string {
    return this.#native.text(index) as string
  }

  hold(): void {
    this.#holds++
    this.#native.hold()
  }

  unhold(): void {
    this.#holds--
    this.#native.unhold()
    this.#closeIfUnused()
  }

  /**
   * Tells the engine that JavaScript has ended. The engine still carries out the releases and
   * renewals that were requested. It grants no acquire any more, and `maxStall` does not apply to
   * the leases.
   */
  excuse(): void {
    this.#batch.cross()
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
    this.#batch.cross()
    this.#native.releaseAll(timeout)
  }

  /** Frees a slot after its last record. */
  free(slot: number): void {
    this.#slots.free(slot)
    this.#closeIfUnused()
  }

  #begin(code: number, a: number, b: number, c: number, d: number, e: number): number {
    const slot = this.#slots.next()
    this.#batch.push(code, slot, a, b, c, d, e)
    return slot
  }
}
