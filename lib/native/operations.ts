// Gathers operations until the next microtask, and sends them to native code together: a crossing
// costs more than one operation on the other side. src/binding/operations.rs reads them.

import { setImmediate } from '../util/real-timers'
import type { NativeBridge } from './addon'
import { Flag, OPERATION_LENGTH } from './protocol'

// A constant of this file is faster than an import.
const LENGTH = OPERATION_LENGTH
/**
 * How many operations cross together at most. If this is larger, native code begins later with the
 * first ones of a burst; if it is smaller, a burst crosses more often.
 */
const ROOM = 512

// Do not use queueMicrotask(): fake clocks replace it along with the timers.
const settled = Promise.resolve()
const soon = (callback: () => void): void => void settled.then(callback)

export class OperationBatch {
  readonly #native: NativeBridge
  /** Takes the records of settled operations out of native code. */
  readonly #drain: () => void
  readonly #operations = new Float64Array(LENGTH * ROOM)
  #count = 0
  /**
   * The keys, tokens and traces of the operations that have some. Each ends with a NUL, and none
   * contains one.
   */
  #texts = ''
  /** Whether a flush of the acquires that native code may hold back is scheduled. */
  #flushing = false

  constructor(native: NativeBridge, drain: () => void) {
    this.#native = native
    this.#drain = drain
  }

  /** Adds a text of the operation that is pushed next. */
  addText(text: string): void {
    this.#texts += `${text}\0`
  }

  /**
   * Adds the trace of the operation that is pushed next. Returns what to add to the code of that
   * operation.
   */
  addTrace(trace: string | undefined): number {
    if (trace === undefined) return 0
    this.addText(trace)
    return Flag.Traced
  }

  push(code: number, slot: number, a: number, b: number, c: number, d: number, e: number): void {
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
    // Deliver what this hands on in a microtask: the caller of this operation has no promise yet.
    if (++this.#count === ROOM && this.cross()) soon(this.#handedOn)
  }

  readonly #submit = (): void => {
    if (this.#count !== 0 && this.cross()) this.#handedOn()
  }

  readonly #flush = (): void => {
    this.#flushing = false
    if (this.cross()) this.#handedOn()
  }

  readonly #handedOn = (): void => {
    // Native code holds acquires back while it hands leases on quickly. It sends them when the
    // hand-offs are over, or with the next batch that hands nothing on.
    if (!this.#flushing) {
      this.#flushing = true
      setImmediate(this.#flush)
    }
    this.#drain()
  }

  /** Sends the gathered operations. Returns true if there is something to drain. */
  cross(): boolean {
    const count = this.#count
    const texts = this.#texts
    this.#count = 0
    this.#texts = ''
    return this.#native.submit(this.#operations, count, texts)
  }
}
