import type { Contention } from '../diagnostics/contention'
import type { HolderQuery } from './holder-query'

/** What a client knows, or is asking the store, about the holders of a key. */
export interface Inquiry {
  readonly key: string
  query: HolderQuery
  /** Whether the query is the second one. */
  isRepeated: boolean
  /** Whether calls stop waiting for the query, because it is answered or took too long. */
  isOver: boolean
  /** Whether calls stopped waiting for a query that was sent and not answered. */
  isOverdue: boolean
  /** `undefined` if the store has not answered. */
  contention: Contention | undefined
  /** The time until which the store is not asked again. */
  restsUntil: number
}

/** A call whose wait has ended. */
export interface EndedCall {
  /** `undefined` if the store is not asked. */
  readonly inquiry: Inquiry | undefined
  /** Whether the engine says that this client holds the lock. */
  readonly heldHere: boolean
  /** When the call stops waiting for the store. */
  readonly until: number
  report(contention: Contention): void
}
