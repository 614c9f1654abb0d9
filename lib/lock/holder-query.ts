// Asks the store who holds a lock, and who waits for it.

import type { LockState } from '../diagnostics/contention'
import { RecordKind } from '../native/protocol'
import { bridge } from '../native/records'
import { deliverRecord, noteRecord, type SlotOwner, slots } from '../native/slots'
import { now } from '../util/clock'

/**
 * The most characters of an answer. One waiter takes about 70. If this is larger, the answer about
 * a crowded lock blocks the thread while it is parsed; if it is smaller, fewer errors name the
 * holder.
 */
const MOST_TEXT = 1_000_000

export class HolderQuery implements SlotOwner {
  /** When the query was sent; `Infinity` before that. */
  sentAt = Number.POSITIVE_INFINITY
  /**
   * Whether the last record of the query was delivered. After that, another operation may have the
   * slot.
   */
  isAnswered = false
  readonly #client: number
  readonly #key: string
  readonly #onAnswer: (answer: LockState | undefined) => void
  #slot = 0
  #isAbandoned = false
  /** The answer. If the query was abandoned, either of its two records may bring the answer. */
  #answer: LockState | undefined

  /** `onAnswer` is called once: with `undefined` if the store can't tell. */
  constructor(client: number, key: string, onAnswer: (answer: LockState | undefined) => void) {
    this.#client = client
    this.#key = key
    this.#onAnswer = onAnswer
  }

  send(): void {
    this.sentAt = now()
    this.#slot = bridge.inspect(this.#client, this.#key)
    slots[this.#slot] = this
  }

  /** Lets the process end before the answer arrives. */
  abandon(): void {
    this.#isAbandoned = true
    bridge.abandon(this.#slot)
  }

  [noteRecord](): void {}

  [deliverRecord](kind: number, a: number, b: number): void {
    if (kind === RecordKind.Inspected) this.#answer = a === 1 ? parse(bridge.text(b)) : null
    if (this.#isAbandoned) {
      // There is another record. It may be the answer.
      this.#isAbandoned = false
      slots[this.#slot] = this
      return
    }
    this.isAnswered = true
    this.#onAnswer(this.#answer)
  }
}

function parse(text: string): LockState | undefined {
  return text.length > MOST_TEXT ? undefined : JSON.parse(text)
}
