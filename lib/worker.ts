// The lock worker. The state machine of src/worker.rs decides what to do next. This file does it,
// and reports the result to the machine.

import { randomUUID } from 'node:crypto'
import { setImmediate } from 'node:timers'
import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../index'
import { badType, badValue } from './arguments'
import * as channels from './channels'
import { LockClient } from './client'
import { defineDispose } from './dispose'
import { Emitter } from './emitter'
import { closed, LockAbortedError, LockClosedError, LockLostError, LockTimeoutError, quote, released } from './errors'
import { foreignClient } from './foreign-client'
import { type Lease, letRunOut, type Observer } from './lease'
import { bridge, createMachine, Flag, type WorkerMachine } from './native'
import { parseWorker, type WorkerSettings } from './options'
import { ignore } from './promise'
import { guarded } from './rethrow'
import { assertNotLost } from './section'
import type { Sections } from './sections'
import { Tenure, type Work } from './tenure'
import { asError } from './thrown'
import { type Unheard, warnOnce } from './unheard'

// Numbered as in src/binding/worker.rs; what they mean stands in src/worker.rs.
const Event = {
  Start: 0,
  Stop: 1,
  Granted: 2,
  Busy: 3,
  Unavailable: 4,
  Rested: 5,
  Lost: 6,
  WorkFailed: 7,
  WorkEnded: 8,
  Released: 9,
} as const

const Effect = {
  TryAcquire: 0,
  Queue: 1,
  Sleep: 2,
  StartWork: 3,
  EndWork: 4,
  Release: 5,
  Cancel: 6,
  Rest: 7,
} as const

// Read it at load time: a fake clock may stand still.
const realSetImmediate = setImmediate
const nextTurn = (): Promise<void> => new Promise((resolve) => void realSetImmediate(resolve))

function noClient(given: unknown): TypeError {
  const client = foreignClient(given)
  const received = client && `${client.what}: give its URL instead, { store: '${client.url}' }`
  return badType('client', 'a LockClient made by createLockClient()', given, received)
}

export class LockWorker extends Emitter<api.LockWorkerEvents> implements api.LockWorker {
  readonly workerId: string
  readonly #settings: WorkerSettings
  readonly #work: Work
  readonly #machine: WorkerMachine
  /** The one given, or its own, which is closed whenever it comes to rest. */
  #client: LockClient | undefined
  #closing: Promise<void> = Promise.resolve()
  /**
   * Events that are not handled yet: a listener may start or stop the worker while an event is
   * handled.
   */
  readonly #happened: number[] = []
  #handling = false
  #keepingAlive = false
  /** The sections that count the work of the tenure, until its lease is released or lost. */
  #section: Sections | undefined
  /** Whether the worker was started, and not stopped since. */
  #isWanted = false
  /** Whether the work that the worker ends has outlived `stopTimeout`. */
  #isOverdue = false
  /**
   * Whether the client's drain ended before the work did, so that the work no longer keeps the
   * process alive.
   */
  #isLetGo = false
  #lease: Lease | null = null
  #tenure: Tenure | undefined
  /** Why the work of the tenure is ended, if it is not a stop. */
  #end: { reason: api.StopReason; cause: unknown } | undefined
  /** Aborts the requests for the lock, and the pauses between them. */
  #campaign = new AbortController()
  /** Resolves the promises of stop() when the worker has stopped. */
  #stopped: (() => void)[] = []
  declare readonly [Symbol.asyncDispose]: () => Promise<void>

  static {
    defineDispose(LockWorker.prototype, (worker) => worker.stop())
  }

  constructor(options: api.LockWorkerOptions) {
    const settings = parseWorker(options)
    super()
    this.#settings = settings
    this.#work = this.#workOf(settings)
    this.workerId = settings.workerId ?? randomUUID()
    if ((settings.store as unknown) instanceof LockClient) {
      throw badValue('The "store" option takes URLs; what createLockClient() made is given as "client"')
    }
    if (settings.client === undefined) this.#client = this.#openClient()
    else if (settings.client instanceof LockClient) this.#client = settings.client
    else throw noClient(settings.client)
    try {
      LockClient.hostOf(this.#client).checkNames(settings.key)
    } catch (error) {
      this.#closeOwn()
      throw error
    }
    this.#machine = createMachine()
  }

  get state(): api.WorkerState {
    return this.#machine.state as api.WorkerState
  }

  get lease(): api.Lease | null {
    // What its user has released is not held any more, though the worker is not done with it.
    return this.#lease?.isHeld ? this.#lease : null
  }

  start(): this {
    this.#isWanted = true
    this.#send(Event.Start)
    return this
  }

  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#stopped.push(resolve)
      this.#stop()
    })
  }

  #stop(): void {
    this.#isWanted = false
    this.#send(Event.Stop)
    if (this.#isOverdue) this.#giveUp()
  }

  /** Resolves stop(), and lets the process end, although the work is overdue. */
  #giveUp(): void {
    if (this.#isWanted) return
    this.#keepAlive(false)
    this.#closeOwn({ drain: 0 })
    this.#tellStopped()
  }

  /**
   * Closes the worker's own client. Work that still runs can release its lease through the store.
   */
  #closeOwn(options?: api.CloseOptions): void {
    if (this.#settings.client !== undefined || this.#client === undefined) return
    this.#closing = this.#client.close(options)
    this.#client = undefined
  }

  #tellStopped(): void {
    const stopped = this.#stopped
    this.#stopped = []
    this.#closing.then(() => {
      for (const resolve of stopped) resolve()
    })
  }

  /** Stops the worker: its client closes and grants no more locks. */
  readonly #clientClosed = (): void => {
    this.#end ??= { reason: 'closed', cause: closed(this.#settings.key) }
    this.#stop()
  }

  #openClient(): LockClient {
    const { store, prefix, ttl } = this.#settings
    const client = new LockClient({ store, prefix, ttl, name: this.workerId })
    client.on('error', (error) => this.#report(error))
    return client
  }

  #send(...events: number[]): void {
    this.#happened.push(...events)
    if (this.#handling) return
    this.#handling = true
    try {
      for (let event = this.#happened.shift(); event !== undefined; event = this.#happened.shift()) this.#handle(event)
    } finally {
      this.#handling = false
    }
  }

  #handle(event: number): void {
    const previous = this.state
    const effects = this.#machine.send(event)
    const state = this.state
    this.#keepAlive(state !== 'idle' && !this.#isLetGo && (this.#isWanted || !this.#isOverdue))
    if (state !== previous) this.#tellState(state, previous)
    for (const effect of effects) this.#act(effect)
  }

  #tellState(state: api.WorkerState, previous: api.WorkerState): void {
    if (channels.worker.hasSubscribers) {
      channels.worker.publish({ worker: this, workerId: this.workerId, key: this.#settings.key, state, previous })
    }
    guarded(() => this.emit('state', state, previous))
  }

  #keepAlive(wanted: boolean): void {
    if (wanted === this.#keepingAlive) return
    this.#keepingAlive = wanted
    if (wanted) bridge.hold()
    else bridge.unhold()
  }

  #act(effect: number): void {
    switch (effect) {
      case Effect.TryAcquire:
        this.#ask(-1).then(this.#answered)
        break
      case Effect.Queue:
        this.#queue().then(this.#answered)
        break
      case Effect.Sleep:
        this.#sleep().then(() => this.#send(Event.Rested))
        break
      case Effect.StartWork:
        this.#startWork()
        break
      case Effect.EndWork:
        this.#endWork().then(() => {
          if (this.#lease === null) this.#endSection()
          this.#send(Event.WorkEnded)
        })
        break
      case Effect.Release:
        this.#release().then(() => {
          this.#endSection()
          this.#send(Event.Released)
        })
        break
      case Effect.Cancel:
        this.#campaign.abort()
        this.#campaign = new AbortController()
        break
      case Effect.Rest:
        this.#rest()
        break
    }
  }

  /** Asks for the lock. Resolves with the lease, or with the events to send instead. */
  async #ask(wait: number): Promise<Lease | number[]> {
    const { signal } = this.#campaign
    try {
      this.#client ??= this.#openClient()
      const acquirer = LockClient.acquirerOf(this.#client)
      LockClient.hostOf(this.#client).pauses.add(this.#clientClosed)
      const { key, ttl = acquirer.defaults.ttl } = this.#settings
      const flags = Flag.ReportRenewals | Flag.Section
      const asked = { ...acquirer.defaults, ttl, wait, flags, signal }
      return (await acquirer.request(key, asked, this.#observer)) ?? [Event.Busy]
    } catch (error) {
      if (error instanceof LockTimeoutError || error instanceof LockLostError) return [Event.Busy]
      if (error instanceof LockAbortedError) return [Event.Unavailable]
      this.#report(error)
      if (!(error instanceof LockClosedError)) return [Event.Unavailable]
      // A closed client stays closed, so the worker stops. It stops in the next turn of the event
      // loop: otherwise a listener that starts an idle worker again would block the loop.
      await nextTurn()
      return [Event.Stop, Event.Unavailable]
    }
  }

  /**
   * Waits in the queue without a limit. A queued request does not report that the store can't be
   * reached, so this checks the store at each `retryInterval`, and reports its errors.
   */
  async #queue(): Promise<Lease | number[]> {
    const { signal } = this.#campaign
    const watch = setInterval(() => {
      this.#client?.ready().catch((error) => {
        if (!signal.aborted) this.#report(error)
      })
    }, this.#settings.retryInterval)
    watch.unref()
    try {
      return await this.#ask(Number.POSITIVE_INFINITY)
    } finally {
      clearInterval(watch)
    }
  }

  // Store the lease and send the event in one turn: others can see the lease from now on, so the
  // machine must know of it, and of its end.
  readonly #answered = (answer: Lease | number[]): void => {
    if (Array.isArray(answer)) {
      this.#send(...answer)
    } else if (answer.isHeld) {
      this.#lease = answer
      this.#end = undefined
      // Count the section before the events: a listener may close the client.
      this.#section = LockClient.hostOf(this.#client as LockClient).sections
      this.#section.beginAside(this.#letGo)
      this.#send(Event.Granted)
    } else {
      // The lease was lost before this thread handled the grant. As far as the worker knows, no
      // client holds it.
      this.#send(Event.Busy)
    }
  }

  async #sleep(): Promise<void> {
    const { signal } = this.#campaign
    await sleep(this.#settings.retryInterval, undefined, { signal }).catch(ignore)
  }

  #startWork(): void {
    const lease = this.#lease as Lease
    guarded(() => this.emit('acquired', lease))
    this.#tenure = new Tenure(lease, this.#work)
    this.#tenure.start()
  }

  async #endWork(): Promise<void> {
    const stopped = {
      reason: 'stopped',
      cause: new LockAbortedError(`the worker ${quote(this.workerId)} was stopped`),
    } as const
    const { reason, cause } = this.#end ?? stopped
    await this.#tenure?.end(reason, cause)
    this.#tenure = undefined
    this.#isOverdue = false
  }

  /** Lets the process end before the work does, because the client's drain is over. */
  readonly #letGo = (): void => {
    this.#isLetGo = true
    this.#keepAlive(false)
    this.#tenure?.letGo()
  }

  /** Ends the section, because the work has ended and its lease is released or lost. */
  #endSection(): void {
    this.#section?.endAside(this.#letGo)
    this.#section = undefined
    this.#isLetGo = false
  }

  #overdue(): void {
    this.#isOverdue = true
    this.#lease?.[letRunOut]()
    this.#giveUp()
  }

  async #release(): Promise<void> {
    const lease = this.#lease
    if (lease === null) return
    try {
      if (!(await lease.release())) assertNotLost(lease)
      guarded(() => this.emit('released', lease))
    } catch (error) {
      if (error instanceof LockLostError) this.#lost(lease, error)
      else this.#report(error)
    }
    this.#lease = null
  }

  #rest(): void {
    if (this.#client !== undefined) LockClient.hostOf(this.#client).pauses.delete(this.#clientClosed)
    this.#closeOwn()
    this.#tellStopped()
  }

  #workOf(settings: WorkerSettings): Work {
    return {
      start: settings.startWork,
      stop: settings.stopWork,
      patience: settings.stopTimeout,
      failed: (error) => {
        this.#report(error, 'startWork failed')
        this.#end = { reason: 'failed', cause: error }
        this.#send(Event.WorkFailed)
      },
      overdue: () => this.#overdue(),
      report: (error, what) => this.#report(error, what),
    }
  }

  readonly #observer: Observer = {
    renewed: (lease) => {
      if (this.#lease === lease) this.emit('renewed', lease)
    },
    released: (lease) => {
      // In any other state its work is being ended already, or the release is the worker's own.
      if (this.#lease !== lease || this.state !== 'working') return
      this.#end ??= { reason: 'released', cause: released(lease.key) }
      // As after a failure: whoever gave the lease away did not mean to have it back at once.
      this.#send(Event.WorkFailed)
    },
    lost: (lease, error) => this.#lost(lease, error),
  }

  #lost(lease: api.Lease, error: api.LockLostError): void {
    if (this.#lease !== lease) return
    this.#lease = null
    this.#end ??= { reason: error.reason, cause: error }
    guarded(() => this.emit('lost', lease, error))
    this.#send(Event.Lost)
  }

  /** Emits an error. `what` says what failed, if the error alone does not. */
  #report(error: unknown, what?: string): void {
    // Without a listener it would be thrown.
    if (this.listenerCount('error') > 0) guarded(() => this.emit('error', asError(error)))
    else warnOnce(this, error, () => this.#unheard(what))
  }

  #unheard(what: string | undefined): Unheard {
    return { who: `worker of lock ${quote(this.#settings.key)}`, what, remedy: "worker.on('error', (error) => …)" }
  }
}
