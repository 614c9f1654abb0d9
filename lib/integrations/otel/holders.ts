// Knows the holders of locks in this process, so that the span of a waiter can be linked to the
// span of the holder that it waited for. Forgets a lock that is neither held nor waited for.

import type { SpanContext } from '@opentelemetry/api'
import type * as api from '../../../index'

/** The most links of a span. More are of no use, as with a semaphore of a thousand permits. */
export const MOST_LINKS = 8

interface Lock {
  readonly holders: Set<Holder>
  waiting: number
  /** The hold that ended last. */
  last: { readonly context: SpanContext; readonly order: number } | undefined
}

/** Counts events, to tell which came first. */
let order = 0
const locks = new Map<string, Lock>()

/**
 * Names the lock of one key at one store. The prefix is not part of the name, so spans of clients
 * with different prefixes may be linked by mistake. Such clients are rare.
 */
function nameOf(store: api.StoreIdentity, key: string): string {
  return `${store.url}\0${key}`
}

/** A call that waits for a lock. */
export class Waiter {
  readonly #name: string
  readonly #lock: Lock
  readonly #since = ++order

  constructor(store: api.StoreIdentity, key: string) {
    this.#name = nameOf(store, key)
    this.#lock = open(this.#name)
    this.#lock.waiting++
  }

  /** Returns the hold that ended last while the call waited. */
  predecessor(): SpanContext[] {
    const { last } = this.#lock
    return last !== undefined && last.order > this.#since ? [last.context] : []
  }

  /** Returns the current holders. */
  holders(): SpanContext[] {
    return [...this.#lock.holders].slice(0, MOST_LINKS).map(({ context }) => context)
  }

  /** Returns whether the call with this span holds the lock. */
  isHeldFor(spanId: string): boolean {
    for (const { acquireSpan } of this.#lock.holders) if (acquireSpan?.spanId === spanId) return true
    return false
  }

  end(): void {
    this.#lock.waiting--
    tidy(this.#name, this.#lock)
  }
}

/** A holder of a lock. */
export class Holder {
  readonly #name: string
  readonly #lock: Lock
  readonly context: SpanContext
  /** The span of the acquire, once it is known. */
  acquireSpan: SpanContext | undefined

  constructor({ store, key }: api.LeaseMessage, context: SpanContext) {
    this.#name = nameOf(store, key)
    this.#lock = open(this.#name)
    this.context = context
    this.#lock.holders.add(this)
  }

  end(): void {
    this.#lock.holders.delete(this)
    this.#lock.last = { context: this.context, order: ++order }
    tidy(this.#name, this.#lock)
  }
}

/** Returns the number of known locks. */
export function size(): number {
  return locks.size
}

function open(name: string): Lock {
  let lock = locks.get(name)
  if (lock === undefined) {
    lock = { holders: new Set(), waiting: 0, last: undefined }
    locks.set(name, lock)
  }
  return lock
}

function tidy(name: string, lock: Lock): void {
  if (lock.waiting === 0 && lock.holders.size === 0) locks.delete(name)
}
