// Who held which lock in this process: so that the span of whoever waited can be linked to the span of whoever kept it
// waiting. Nothing is kept of a lock that is neither held nor waited for.

import type { SpanContext } from '@opentelemetry/api'
import type * as api from '../../index'

/** More links than that tell nobody more, as with a semaphore of a thousand permits. */
export const MOST_LINKS = 8

interface Lock {
  readonly holders: Set<Holder>
  waiting: number
  /** Whose hold ended last. */
  last: { readonly context: SpanContext; readonly turn: number } | undefined
}

/** Counts what happens, to tell what was first. */
let turn = 0
const locks = new Map<string, Lock>()

/** A lock is one key at one store; clients with another prefix are rare enough to be linked in error. */
function nameOf(store: api.StoreIdentity, key: string): string {
  return `${store.url}\0${key}`
}

/** Somebody who waits for a lock. */
export class Waiter {
  readonly #name: string
  readonly #lock: Lock
  readonly #since = ++turn

  constructor(store: api.StoreIdentity, key: string) {
    this.#name = nameOf(store, key)
    this.#lock = open(this.#name)
    this.#lock.waiting++
  }

  /** Whose hold ended last while this one waited. */
  predecessor(): SpanContext[] {
    const { last } = this.#lock
    return last !== undefined && last.turn > this.#since ? [last.context] : []
  }

  /** Who holds it now. */
  holders(): SpanContext[] {
    return [...this.#lock.holders].slice(0, MOST_LINKS).map(({ context }) => context)
  }

  /** Whether it is held by whom the call of that span was for. */
  isHeldFor(spanId: string): boolean {
    for (const { asked } of this.#lock.holders) if (asked?.spanId === spanId) return true
    return false
  }

  end(): void {
    this.#lock.waiting--
    tidy(this.#name, this.#lock)
  }
}

/** Somebody who holds a lock. */
export class Holder {
  readonly #name: string
  readonly #lock: Lock
  readonly context: SpanContext
  /** The span of the call for it, once that is known. */
  asked: SpanContext | undefined

  constructor({ store, key }: api.LeaseMessage, context: SpanContext) {
    this.#name = nameOf(store, key)
    this.#lock = open(this.#name)
    this.context = context
    this.#lock.holders.add(this)
  }

  end(): void {
    this.#lock.holders.delete(this)
    this.#lock.last = { context: this.context, turn: ++turn }
    tidy(this.#name, this.#lock)
  }
}

/** How many locks something is known of. */
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
