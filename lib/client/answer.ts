// The answers to operations: ping, inspect, list, diagnose, break, close.

import { closedError, unavailableError } from '../diagnostics/errors'
import { RecordKind } from '../native/protocol'
import { bridge } from '../native/records'
import { deliverRecord, noteRecord, type SlotOwner, slots } from '../native/slots'
import { type Deferred, defer, raise } from '../util/deferred'

class PendingAnswer implements SlotOwner {
  readonly #deferred: Deferred<string | null>
  readonly #key: string | undefined

  constructor(deferred: Deferred<string | null>, key: string | undefined) {
    this.#deferred = deferred
    this.#key = key
  }

  [noteRecord](): void {}

  [deliverRecord](kind: number, a: number, b: number): void {
    const { resolve, reject } = this.#deferred
    const key = this.#key
    if (kind === RecordKind.Failed) {
      const message = bridge.text(b)
      reject(() => unavailableError(a, message, key))
    } else if (kind === RecordKind.Closed) {
      reject(() => closedError(key))
    } else {
      const hasText =
        (kind === RecordKind.Inspected || kind === RecordKind.Diagnosed || kind === RecordKind.Listed) && a === 1
      resolve(hasText ? bridge.text(b) : kind === RecordKind.Released && a === 1 ? '' : null)
    }
  }
}

/**
 * Resolves with the text of the answer, with '' if a lock was broken, and with `null` for any other
 * answer. Rejects if the operation failed or its client was closed.
 */
export function answerOf(slot: number, key?: string): Promise<string | null> {
  const deferred = defer<string | null>()
  slots[slot] = new PendingAnswer(deferred, key)
  return deferred.promise.catch(raise)
}
