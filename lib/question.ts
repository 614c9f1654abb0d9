// Asks the store who holds a lock, and who waits for it.

import { now } from './clock'
import type { Answer } from './contention'
import { bridge, Kind, note, type Slot, slots, tell } from './native'

/**
 * The most characters of an answer. One waiter takes about 70. If this is larger, the answer about
 * a crowded lock blocks the thread while it is parsed; if it is smaller, fewer errors name the
 * holder.
 */
const MOST_TEXT = 1_000_000

export class Question implements Slot {
  /** When the question was sent; `Infinity` before that. */
  sentAt = Number.POSITIVE_INFINITY
  /**
   * Whether the last record of the question was told. After that, another operation may have the
   * slot.
   */
  isAnswered = false
  readonly #client: number
  readonly #key: string
  readonly #heard: (answer: Answer | undefined) => void
  #slot = 0
  #isAbandoned = false
  /** The answer, from the first of the two records of an abandoned question. */
  #answer: Answer | undefined

  /** `heard` is called once: with `undefined` if the store can't tell. */
  constructor(client: number, key: string, heard: (answer: Answer | undefined) => void) {
    this.#client = client
    this.#key = key
    this.#heard = heard
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

  [note](): void {}

  [tell](kind: number, a: number, b: number): void {
    if (kind === Kind.Inspected) this.#answer = a === 1 ? parse(bridge.text(b)) : null
    if (this.#isAbandoned) {
      // There is another record. It may be the answer.
      this.#isAbandoned = false
      slots[this.#slot] = this
      return
    }
    this.isAnswered = true
    this.#heard(this.#answer)
  }
}

function parse(text: string): Answer | undefined {
  return text.length > MOST_TEXT ? undefined : JSON.parse(text)
}
