// Finds out who holds the locks whose waits have ended, for the errors of these calls. The store
// may be overloaded, so the client limits its questions: all calls that waited for a lock share
// one, and the client sends none while the store does not answer in time.

import * as timers from 'node:timers'
import { type Abortable, onAbort, unwatch, watch } from './abort'
import { now } from './clock'
import { type Answer, type Asker, type Contention, contentionOf, guess } from './contention'
import * as errors from './errors'
import { Lease } from './lease'
import type { Outage } from './outage'
import { defer, raise } from './promise'
import { Question } from './question'

// Read them at load time: with a fake clock that stands still, calls would wait for ever.
const { clearTimeout, setImmediate, setTimeout } = timers
const soon = Promise.resolve()

/**
 * How long an error waits for the store, in ms. An answer counts for this long, for waits that had
 * begun before its question was sent. If this is larger, calls take longer than their `wait`, and
 * errors name earlier holders. If it is smaller, errors name no holder if the store is far away,
 * and waits that end one after the other send more questions.
 */
const LIMIT = 250
/**
 * How many questions of a client may be unanswered. If this is larger, waits for many locks that
 * end together are a burst of work for the store; if it is smaller, their errors come later.
 */
const MOST_ASKED = 32
/**
 * How long the client does not ask again about a lock, in ms for each holder and waiter in the
 * answer. This is about five times as long as a Redis server needs for one of them. If it is
 * smaller, a crowded lock takes more of the server's time; if it is larger, more of its errors name
 * no holder.
 */
const REST = 0.02
/**
 * How long the client does not ask again about a lock after a question that failed, in ms. If this
 * is smaller, a failing store is asked more often; if it is larger, errors name no holder for
 * longer.
 */
const FAILED_REST = 1_000
/**
 * How many calls end without a break: as many as in `SLICE` in native.ts. If this is larger, the
 * thread is blocked for longer; if it is smaller, the last of many calls ends later.
 */
const SLICE = 256

/** What is known, or being asked, about a key. */
interface Topic {
  readonly key: string
  question: Question
  /** Whether the question is the second one. */
  isAskedAgain: boolean
  /** Whether calls stop waiting for the question, because it is answered or took too long. */
  isOver: boolean
  isOverdue: boolean
  /** `undefined` if the store has not answered. */
  contention: Contention | undefined
  /** The time until which the store is not asked again. */
  restsUntil: number
}

/** A call whose wait has ended. */
interface Call {
  /** `undefined` if the store is not asked. */
  readonly topic: Topic | undefined
  /** Whether the engine says that this client holds the lock. */
  readonly heldHere: boolean
  /** When the call stops waiting for the store. */
  readonly until: number
  tell(contention: Contention): void
}

/** Ends the calls of one client whose waits are over, in the order in which these ended. */
export class Timeouts {
  readonly #asker: Asker
  readonly #outage: Outage
  /** The calls that have not been told yet, in order. */
  readonly #calls: Call[] = []
  /** The topics of questions that are on their way, or were a moment ago, by key. */
  readonly #topics = new Map<string, Topic>()
  /** The topics whose questions were not sent yet. */
  readonly #unasked: Topic[] = []
  /** The answers that have not been described yet. */
  #answers: { readonly topic: Topic; readonly info: Answer | undefined }[] = []
  /** How many questions were sent and not answered. */
  #asked = 0
  /** How many of these have taken too long. */
  #overdue = 0
  #timer: NodeJS.Timeout | undefined
  #isScheduled = false
  /** Whether the calls have a break. */
  #isPausing = false
  #isClosed = false

  constructor(asker: Asker, outage: Outage) {
    this.#asker = asker
    this.#outage = outage
  }

  /** Returns what is known without the store. `heldHere`: whether this client holds the lock. */
  guess(heldHere: boolean): Contention {
    return guess(this.#asker, heldHere)
  }

  /** Calls `tell` with what is known about `key`, for a call that has waited for `waited` ms. */
  add(key: string, waited: number, heldHere: boolean, tell: (contention: Contention) => void): void {
    if (this.#isClosed) {
      tell(this.guess(heldHere))
      return
    }
    const at = now()
    this.#calls.push({ topic: this.#topicOf(key, at - waited, at), heldHere, until: at + LIMIT, tell })
    this.#schedule()
  }

  /** Resolves with what {@link add} tells. Rejects if `signal` is aborted before. */
  async of(key: string, waited: number, signal: AbortSignal | undefined): Promise<Contention> {
    const { promise, resolve, reject } = defer<Contention>()
    const caller: Abortable = {
      [onAbort]: ({ reason }) => reject(() => errors.aborted(key, reason)),
    }
    if (signal?.aborted) throw errors.aborted(key, signal.reason)
    if (signal !== undefined) watch(signal, caller)
    this.add(key, waited, false, resolve)
    try {
      return await promise.catch(raise)
    } finally {
      if (signal !== undefined) unwatch(signal, caller)
    }
  }

  /** Tells all calls what is known. Called when the client is closed. */
  readonly close = (): void => {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const topic of this.#topics.values()) this.#giveUp(topic)
    this.#topics.clear()
    this.#tell()
  }

  /** Returns the topic of a call whose wait lasted from `began` to `at`. */
  #topicOf(key: string, began: number, at: number): Topic | undefined {
    const known = this.#topics.get(key)
    if (known !== undefined) {
      const { sentAt } = known.question
      if (!known.isOver || (began <= sentAt && at <= sentAt + LIMIT)) return known
      if (at < known.restsUntil) return undefined
    }
    if (this.#overdue > 0) return undefined
    const topic: Topic = {
      key,
      question: new Question(this.#asker.id, key, (info) => this.#heard(topic, info)),
      isAskedAgain: false,
      isOver: false,
      isOverdue: false,
      contention: undefined,
      restsUntil: 0,
    }
    this.#topics.set(key, topic)
    this.#unasked.push(topic)
    return topic
  }

  #heard(topic: Topic, info: Answer | undefined): void {
    this.#asked--
    if (topic.isOverdue) this.#overdue--
    if (this.#isClosed) return
    this.#answers.push({ topic, info })
    this.#schedule()
  }

  /** Continues in a microtask, when everything that arrived at once is known. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    soon.then(() => {
      this.#isScheduled = false
      this.#describe()
      this.#ask()
      this.#tell()
    })
  }

  #describe(): void {
    const answers = this.#answers
    if (answers.length === 0) return
    this.#answers = []
    const { id, name } = this.#asker
    const isName = ({ holder }: { holder: string | null }) => holder === name
    const ours = answers.filter(({ info }) => info?.leases.some(isName) || info?.waiters.some(isName))
    // Look at all leases once for all answers: there may be 100 000 leases.
    const own = ours.length > 0 ? Lease.ownOf(id, new Set(ours.map(({ topic }) => topic.key))) : undefined
    for (const { topic, info } of answers) {
      const known = own?.get(topic.key)
      // If no call of this client waits, a waiter with the client's name may be a call whose wait
      // has ended. The client releases the place of that call when the store has answered its last
      // poll.
      const isUnsure = !known?.waiting && info?.waiters.some(isName)
      if (isUnsure && this.#askAgain(topic)) continue
      if (info !== undefined) topic.contention = contentionOf(this.#asker, info, known)
      this.#rest(topic, info)
    }
  }

  /** Asks once more and returns true, unless it has done so before or the calls no longer wait. */
  #askAgain(topic: Topic): boolean {
    if (topic.isOver || topic.isAskedAgain) return false
    topic.isAskedAgain = true
    topic.question = new Question(this.#asker.id, topic.key, (info) => this.#heard(topic, info))
    this.#asked++
    topic.question.send()
    return true
  }

  /** Lets the calls end, and asks no more about the lock for a while. */
  #rest(topic: Topic, info: Answer | undefined): void {
    const at = now()
    const size = (info?.leases.length ?? 0) + (info?.waiters.length ?? 0)
    topic.isOver = true
    topic.restsUntil = at + (info === undefined ? FAILED_REST : REST * size)
    const forget = () => {
      if (this.#topics.get(topic.key) === topic) this.#topics.delete(topic.key)
    }
    setTimeout(forget, Math.max(LIMIT, topic.restsUntil - at)).unref()
  }

  #ask(): void {
    if (this.#unasked.length === 0 || this.#isClosed) return
    if (this.#overdue > 0 || this.#outage.isAway) {
      for (const topic of this.#unasked) this.#giveUp(topic)
      this.#unasked.length = 0
    }
    while (this.#asked < MOST_ASKED && this.#unasked.length > 0) {
      const { isOver, question } = this.#unasked.shift() as Topic
      if (isOver) continue
      this.#asked++
      question.send()
    }
  }

  /** Lets the calls end without an answer. */
  #giveUp(topic: Topic): void {
    if (topic.isOver) return
    topic.isOver = true
    if (topic.question.sentAt === Number.POSITIVE_INFINITY) {
      this.#topics.delete(topic.key)
      return
    }
    // Another operation may already have the slot.
    if (topic.question.isAnswered) return
    topic.isOverdue = true
    this.#overdue++
    topic.question.abandon()
  }

  /** Tells the calls at the front whose topics are over. */
  #tell(): void {
    if (this.#isPausing) return
    let count = 0
    while (count < SLICE && (this.#calls[count]?.topic?.isOver ?? count < this.#calls.length)) count++
    for (const call of this.#calls.splice(0, count)) this.#end(call)
    if (count === SLICE) {
      // Each call creates an error and runs code of the user.
      this.#isPausing = true
      setImmediate(() => {
        this.#isPausing = false
        this.#tell()
      })
    } else {
      this.#watch()
    }
  }

  #end({ topic, heldHere, tell }: Call): void {
    tell(topic?.contention ?? this.guess(heldHere))
  }

  /** Gives up the questions of calls that have waited for too long. */
  #watch(): void {
    const [first] = this.#calls
    if (this.#timer !== undefined || first === undefined) return
    // The question keeps the process alive, not the timer.
    this.#timer = setTimeout(() => {
      this.#timer = undefined
      const at = now()
      for (const { topic, until } of this.#calls) {
        // A timer of Node may be early by a millisecond.
        if (until > at + 1) break
        if (topic !== undefined) this.#giveUp(topic)
      }
      // Give up the questions that were not sent, too: they do not keep the process alive.
      this.#ask()
      this.#tell()
    }, first.until - now()).unref()
  }
}
