// Finds out who holds the locks whose waits have ended, for the errors of these calls. The store
// may be overloaded, so the client limits its queries: all calls that waited for a lock share
// one, and the client sends none while the store does not answer in time.

import {
  type CallingClient,
  type Contention,
  contentionOf,
  guess,
  type LockState,
  type OwnLeases,
} from '../diagnostics/contention'
import { abortedError, timedOutError } from '../diagnostics/errors'
import { type Abortable, addAbortable, onAbort, removeAbortable } from '../util/abort'
import { now } from '../util/clock'
import { defer, type MakeError, raise } from '../util/deferred'
import { clearTimeout, setImmediate, setTimeout } from '../util/real-timers'
import { HolderQuery } from './holder-query'
import type { EndedCall, Inquiry } from './inquiry'
import type { LockRequest } from './lock-request'
import type { Outage } from './outage'

const soon = Promise.resolve()

/**
 * How long an error waits for the store's answer, in ms. The answer also counts for other waits
 * that began before the query and end within this time after the query. If this is larger, calls
 * take longer than their `wait`, and errors name earlier holders. If it is smaller, errors name no
 * holder if the store is far away, and waits that end one after the other send more queries.
 */
const LIMIT = 250
/**
 * How many queries of a client may be unanswered. If this is larger, waits for many locks that
 * end together are a burst of work for the store; if it is smaller, their errors come later.
 */
const MOST_PENDING = 32
/**
 * How long the client does not ask again about a lock, in ms for each holder and waiter in the
 * answer. This is about five times as long as a Redis server needs for one of them. If it is
 * smaller, a crowded lock takes more of the server's time; if it is larger, more of its errors name
 * no holder.
 */
const REST = 0.02
/**
 * How long the client does not ask again about a lock after a query that failed, in ms. If this
 * is smaller, a failing store is asked more often; if it is larger, errors name no holder for
 * longer.
 */
const FAILED_REST = 1_000
/**
 * How many calls end without a break: as many as in `SLICE` of native/records.ts. If this is
 * larger, the thread is blocked for longer; if it is smaller, the last of many calls ends later.
 */
const SLICE = 256

type OwnOf = (client: number, keys: ReadonlySet<string>) => ReadonlyMap<string, OwnLeases>

/** Ends the calls of one client whose waits are over, in the order in which these ended. */
export class Timeouts {
  readonly #client: CallingClient
  readonly #outage: Outage
  readonly #ownOf: OwnOf
  /** The calls whose wait is over and that were not told yet, in order. */
  readonly #calls: EndedCall[] = []
  /** The inquiries of queries that are on their way, or were a moment ago, by key. */
  readonly #inquiries = new Map<string, Inquiry>()
  /** The inquiries whose queries were not sent yet. */
  readonly #unsent: Inquiry[] = []
  /** The answers that have not been described yet. */
  #answers: { readonly inquiry: Inquiry; readonly info: LockState | undefined }[] = []
  /** How many queries were sent and not answered. */
  #pending = 0
  /** How many of these have taken too long. */
  #overdue = 0
  #timer: NodeJS.Timeout | undefined
  #isScheduled = false
  /** Whether the calls that are left end in the next turn of the event loop. */
  #isPausing = false
  #isClosed = false

  /** `ownOf` returns what a client itself knows about locks. */
  constructor(client: CallingClient, outage: Outage, ownOf: OwnOf) {
    this.#client = client
    this.#outage = outage
    this.#ownOf = ownOf
  }

  /** Returns what is known without the store. `heldHere`: whether this client holds the lock. */
  guess(heldHere: boolean): Contention {
    return guess(this.#client, heldHere)
  }

  /** Calls `report` with what is known about `key`, for a call that has waited for `waited` ms. */
  add(key: string, waited: number, heldHere: boolean, report: (contention: Contention) => void): void {
    // Do not ask the store for a call that did not wait: callers often repeat it at once.
    if (this.#isClosed || waited <= 0) {
      report(this.guess(heldHere))
      return
    }
    const at = now()
    this.#calls.push({ inquiry: this.#inquiryOf(key, at - waited, at), heldHere, until: at + LIMIT, report })
    this.#schedule()
  }

  /**
   * Rejects a request for `key` whose wait is over, once it is known who holds the lock. `heldHere`
   * says whether this client holds it.
   */
  end(key: string, request: LockRequest, heldHere: boolean, reject: (makeError: MakeError) => void): void {
    const { wait, count } = request.group ?? { wait: request.wait, count: 1 }
    this.add(key, wait, heldHere, (contention) => reject(() => timedOutError(key, wait, count, contention)))
  }

  /** Resolves with what {@link add} tells. Rejects if `signal` is aborted before. */
  async of(key: string, waited: number, signal: AbortSignal | undefined): Promise<Contention> {
    const { promise, resolve, reject } = defer<Contention>()
    const began = now() - waited
    const caller: Abortable = {
      [onAbort]: ({ reason }) => reject(() => abortedError(key, reason, began)),
    }
    if (signal?.aborted) throw abortedError(key, signal.reason, began)
    if (signal !== undefined) addAbortable(signal, caller)
    this.add(key, waited, false, resolve)
    try {
      return await promise.catch(raise)
    } finally {
      if (signal !== undefined) removeAbortable(signal, caller)
    }
  }

  /** Ends all calls with what is known. Called when the client is closed. */
  readonly close = (): void => {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const inquiry of this.#inquiries.values()) this.#giveUp(inquiry)
    this.#inquiries.clear()
    this.#endCalls()
  }

  /** Returns the inquiry of a call whose wait lasted from `began` to `at`. */
  #inquiryOf(key: string, began: number, at: number): Inquiry | undefined {
    const known = this.#inquiries.get(key)
    if (known !== undefined) {
      const { sentAt } = known.query
      if (!known.isOver || (began <= sentAt && at <= sentAt + LIMIT)) return known
      if (at < known.restsUntil) return undefined
    }
    if (this.#overdue > 0) return undefined
    const inquiry: Inquiry = {
      key,
      query: new HolderQuery(this.#client.id, key, (info) => this.#answered(inquiry, info)),
      isRepeated: false,
      isOver: false,
      isOverdue: false,
      contention: undefined,
      restsUntil: 0,
    }
    this.#inquiries.set(key, inquiry)
    this.#unsent.push(inquiry)
    return inquiry
  }

  #answered(inquiry: Inquiry, info: LockState | undefined): void {
    this.#pending--
    if (inquiry.isOverdue) this.#overdue--
    if (this.#isClosed) return
    this.#answers.push({ inquiry, info })
    this.#schedule()
  }

  /** Continues in a microtask, when everything that arrived at once is known. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    soon.then(() => {
      this.#isScheduled = false
      this.#describe()
      this.#sendQueries()
      this.#endCalls()
    })
  }

  #describe(): void {
    const answers = this.#answers
    if (answers.length === 0) return
    this.#answers = []
    const { id, name } = this.#client
    const isName = ({ holder }: { holder: string | null }) => holder === name
    const ours = answers.filter(({ info }) => info?.leases.some(isName) || info?.waiters.some(isName))
    // Look at all leases once for all answers: there may be 100 000 leases.
    const own = ours.length > 0 ? this.#ownOf(id, new Set(ours.map(({ inquiry }) => inquiry.key))) : undefined
    for (const { inquiry, info } of answers) {
      const known = own?.get(inquiry.key)
      // If no call of this client waits, a waiter with the client's name may be a call whose wait
      // has ended. The client releases the place of that call when the store has answered its last
      // poll.
      const isUnsure = !known?.waiting && info?.waiters.some(isName)
      if (isUnsure && this.#repeat(inquiry)) continue
      if (info !== undefined) inquiry.contention = contentionOf(this.#client, info, known)
      this.#rest(inquiry, info)
    }
  }

  /** Asks once more and returns true, unless it has done so before or the calls no longer wait. */
  #repeat(inquiry: Inquiry): boolean {
    if (inquiry.isOver || inquiry.isRepeated) return false
    inquiry.isRepeated = true
    inquiry.query = new HolderQuery(this.#client.id, inquiry.key, (info) => this.#answered(inquiry, info))
    this.#pending++
    inquiry.query.send()
    return true
  }

  /** Lets the calls end, and asks no more about the lock for a while. */
  #rest(inquiry: Inquiry, info: LockState | undefined): void {
    const at = now()
    const size = (info?.leases.length ?? 0) + (info?.waiters.length ?? 0)
    inquiry.isOver = true
    inquiry.restsUntil = at + (info === undefined ? FAILED_REST : REST * size)
    const forget = () => {
      if (this.#inquiries.get(inquiry.key) === inquiry) this.#inquiries.delete(inquiry.key)
    }
    setTimeout(forget, Math.max(LIMIT, inquiry.restsUntil - at)).unref()
  }

  #sendQueries(): void {
    if (this.#unsent.length === 0 || this.#isClosed) return
    if (this.#overdue > 0 || this.#outage.isAway) {
      for (const inquiry of this.#unsent) this.#giveUp(inquiry)
      this.#unsent.length = 0
    }
    while (this.#pending < MOST_PENDING && this.#unsent.length > 0) {
      const { isOver, query } = this.#unsent.shift() as Inquiry
      if (isOver) continue
      this.#pending++
      query.send()
    }
  }

  /** Lets the calls end without an answer. */
  #giveUp(inquiry: Inquiry): void {
    if (inquiry.isOver) return
    inquiry.isOver = true
    if (inquiry.query.sentAt === Number.POSITIVE_INFINITY) {
      this.#inquiries.delete(inquiry.key)
      return
    }
    // Another operation may already have the slot.
    if (inquiry.query.isAnswered) return
    inquiry.isOverdue = true
    this.#overdue++
    inquiry.query.abandon()
  }

  /** Ends the calls at the front whose inquiries are over. */
  #endCalls(): void {
    if (this.#isPausing) return
    let count = 0
    while (count < SLICE && (this.#calls[count]?.inquiry?.isOver ?? count < this.#calls.length)) count++
    for (const call of this.#calls.splice(0, count)) this.#end(call)
    if (count === SLICE) {
      // Each call creates an error and runs code of the user.
      this.#isPausing = true
      setImmediate(() => {
        this.#isPausing = false
        this.#endCalls()
      })
    } else {
      this.#limitWaits()
    }
  }

  #end({ inquiry, heldHere, report }: EndedCall): void {
    report(inquiry?.contention ?? this.guess(heldHere))
  }

  /** Gives up the queries of calls that have waited for too long. */
  #limitWaits(): void {
    const [first] = this.#calls
    if (this.#timer !== undefined || first === undefined) return
    // The query keeps the process alive, not the timer.
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      const at = now()
      for (const { inquiry, until } of this.#calls) {
        // A timer of Node may be early by a millisecond.
        if (until > at + 1) break
        if (inquiry !== undefined) this.#giveUp(inquiry)
      }
      // Give up the queries that were not sent, too: they do not keep the process alive.
      this.#sendQueries()
      this.#endCalls()
    }, first.until - now()).unref()
  }
}
