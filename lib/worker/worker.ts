// The lock worker. The state machine of src/worker.rs decides what to do next. This file does it,
// and reports the result to the machine.

import { randomUUID } from 'node:crypto'
import type * as api from '../../index'
import { LockClient } from '../client/client'
import * as channels from '../diagnostics/channels'
import { closedError, LockAbortedError, LockLostError, releasedError } from '../diagnostics/errors'
import { type EmitterDescription, warnOnce } from '../diagnostics/unheard'
import type { Lease } from '../lock/lease'
import { endSection, letExpire } from '../lock/lease-methods'
import type { LeaseObserver } from '../lock/lease-owner'
import type { Sections } from '../lock/sections'
import { assertNotLost } from '../lock/with-lock'
import type { WorkerMachine } from '../native/addon'
import { WorkerEffect, WorkerEvent } from '../native/protocol'
import { bridge } from '../native/records'
import { createMachine } from '../native/worker-machine'
import { asError } from '../util/as-error'
import { defineDispose } from '../util/dispose'
import { Emitter } from '../util/emitter'
import { quote } from '../util/printable'
import { callListener } from '../util/uncaught'
import { Campaign, type CampaignResult } from './campaign'
import { EventQueue } from './event-queue'
import { Term, type TermHooks } from './term'
import { WorkerClient } from './worker-client'
import { parseWorker, type WorkerSettings } from './worker-options'

export class LockWorker extends Emitter<api.LockWorkerEvents> implements api.LockWorker {
  readonly workerId: string
  readonly #settings: WorkerSettings
  readonly #hooks: TermHooks
  readonly #machine: WorkerMachine
  readonly #client: WorkerClient
  readonly #campaign: Campaign
  readonly #events = new EventQueue((event) => this.#handle(event))
  #keepingAlive = false
  /** The sections that count the work of the term, until its lease is released or lost. */
  #section: Sections | undefined
  /** Whether the worker was started, and not stopped since. */
  #isWanted = false
  /** Whether the work of a term that has to end has outlived `stopTimeout`. */
  #isOverdue = false
  /**
   * Whether the client's drain ended before the work did, so that the work no longer keeps the
   * process alive.
   */
  #isUnreferenced = false
  #lease: Lease | null = null
  #term: Term | undefined
  /** Why the work of the term has to end, if the reason is not a stop. */
  #end: { reason: api.StopReason; cause: unknown } | undefined
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
    this.#hooks = this.#makeHooks(settings)
    this.workerId = settings.workerId ?? randomUUID()
    const failed = (error: unknown) => this.#report(error)
    this.#client = new WorkerClient(settings, this.workerId, { closed: () => this.#clientClosed(), failed })
    this.#campaign = new Campaign(this.#client, settings, this.#observer, failed)
    this.#machine = createMachine()
  }

  get state(): api.WorkerState {
    return this.#machine.state as api.WorkerState
  }

  get lease(): api.Lease | null {
    // A lease that the user has released is not held, although the worker still ends its work.
    return this.#lease?.isHeld ? this.#lease : null
  }

  start(): this {
    this.#isWanted = true
    this.#events.send(WorkerEvent.Start)
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
    this.#events.send(WorkerEvent.Stop)
    if (this.#isOverdue) this.#giveUp()
  }

  /**
   * Resolves stop() although the work is overdue. Also lets the process end, unless the worker was
   * started again.
   */
  #giveUp(): void {
    if (!this.#isWanted) {
      this.#keepAlive(false)
      this.#client.close({ drain: 0 })
    }
    this.#resolveStops()
  }

  #resolveStops(): void {
    const stopped = this.#stopped
    this.#stopped = []
    this.#client.over.then(() => {
      for (const resolve of stopped) resolve()
    })
  }

  /** Stops the worker, because its client closes and gets no more locks. */
  #clientClosed(): void {
    this.#end ??= { reason: 'closed', cause: closedError(this.#settings.key) }
    this.#stop()
  }

  #handle(event: number): void {
    const previous = this.state
    const effects = this.#machine.send(event)
    const state = this.state
    this.#keepAlive(state !== 'idle' && !this.#isUnreferenced && (this.#isWanted || !this.#isOverdue))
    if (state !== previous) this.#reportState(state, previous)
    for (const effect of effects) this.#perform(effect)
  }

  #reportState(state: api.WorkerState, previous: api.WorkerState): void {
    if (channels.worker.hasSubscribers) {
      channels.worker.publish({ worker: this, workerId: this.workerId, key: this.#settings.key, state, previous })
    }
    callListener(() => this.emit('state', state, previous))
  }

  #keepAlive(wanted: boolean): void {
    if (wanted === this.#keepingAlive) return
    this.#keepingAlive = wanted
    if (wanted) bridge.hold()
    else bridge.unhold()
  }

  #perform(effect: number): void {
    switch (effect) {
      case WorkerEffect.TryAcquire:
        this.#campaign.try().then(this.#campaignEnded)
        break
      case WorkerEffect.Queue:
        this.#campaign.queue().then(this.#campaignEnded)
        break
      case WorkerEffect.Sleep:
        this.#campaign.rest().then(() => this.#events.send(WorkerEvent.Rested))
        break
      case WorkerEffect.StartWork:
        this.#startWork()
        break
      case WorkerEffect.EndWork:
        this.#endWork().then(() => {
          if (this.#lease === null) this.#endSection()
          this.#events.send(WorkerEvent.WorkEnded)
        })
        break
      case WorkerEffect.Release:
        this.#release().then(() => {
          this.#endSection()
          this.#events.send(WorkerEvent.Released)
        })
        break
      case WorkerEffect.Cancel:
        this.#campaign.cancel()
        break
      case WorkerEffect.Rest:
        this.#rest()
        break
    }
  }

  // Store the lease and send the event in one turn. User code can see the lease from now on, so the
  // machine must know of the lease, and of its end.
  readonly #campaignEnded = (answer: CampaignResult): void => {
    if (!('isHeld' in answer)) {
      this.#events.send(...answer)
    } else if (answer.isHeld) {
      this.#lease = answer
      this.#end = undefined
      // Count the section before the events: a listener may close the client.
      this.#section = LockClient.contextOf(this.#client.current as LockClient).sections
      this.#section.beginSelfHeld(this.#unref)
      this.#events.send(WorkerEvent.Granted)
    } else {
      // The lease was lost before this thread handled the grant. As far as the worker knows, no
      // client holds it.
      this.#events.send(WorkerEvent.Busy)
    }
  }

  #startWork(): void {
    const lease = this.#lease as Lease
    callListener(() => this.emit('acquired', lease))
    this.#term = new Term(lease, this.#hooks)
    this.#term.start()
  }

  async #endWork(): Promise<void> {
    const stopped = {
      reason: 'stopped',
      cause: new LockAbortedError(`the worker ${quote(this.workerId)} was stopped`),
    } as const
    const { reason, cause } = this.#end ?? stopped
    await this.#term?.end(reason, cause)
    this.#term = undefined
    this.#isOverdue = false
  }

  /** Lets the process end before the work does, because the client's drain is over. */
  readonly #unref = (): void => {
    this.#isUnreferenced = true
    this.#keepAlive(false)
    this.#term?.unref()
  }

  /** Ends the section, because the work has ended and its lease is released or lost. */
  #endSection(): void {
    this.#section?.endSelfHeld(this.#unref)
    this.#section = undefined
    this.#isUnreferenced = false
  }

  #overdue(): void {
    this.#isOverdue = true
    this.#lease?.[letExpire]()
    this.#giveUp()
  }

  async #release(): Promise<void> {
    const lease = this.#lease
    if (lease === null) return
    try {
      if (!(await lease[endSection]().release())) assertNotLost(lease)
      callListener(() => this.emit('released', lease))
    } catch (error) {
      if (error instanceof LockLostError) this.#leaseLost(lease, error)
      else this.#report(error)
    }
    this.#lease = null
  }

  #rest(): void {
    this.#client.ignoreClose()
    this.#client.close()
    this.#resolveStops()
  }

  #makeHooks(settings: WorkerSettings): TermHooks {
    return {
      start: settings.startWork,
      stop: settings.stopWork,
      patience: settings.stopTimeout,
      failed: (error) => {
        this.#report(error, 'startWork failed')
        this.#end = { reason: 'failed', cause: error }
        this.#events.send(WorkerEvent.WorkFailed)
      },
      overdue: () => this.#overdue(),
      report: (error, what) => this.#report(error, what),
    }
  }

  readonly #observer: LeaseObserver = {
    renewed: (lease) => {
      if (this.#lease === lease) this.emit('renewed', lease)
    },
    released: (lease) => {
      // In any other state, the work is ending already, or the worker itself releases the lease.
      if (this.#lease !== lease || this.state !== 'working') return
      this.#end ??= { reason: 'released', cause: releasedError(lease.key) }
      // Rest as after a failure: code that releases the lease does not want it back at once.
      this.#events.send(WorkerEvent.WorkFailed)
    },
    lost: (lease, error) => this.#leaseLost(lease, error),
  }

  #leaseLost(lease: api.Lease, error: api.LockLostError): void {
    if (this.#lease !== lease) return
    this.#lease = null
    this.#end ??= { reason: error.reason, cause: error }
    callListener(() => this.emit('lost', lease, error))
    this.#events.send(WorkerEvent.Lost)
  }

  /** Emits an error. `what` says what failed, if the error alone does not. */
  #report(error: unknown, what?: string): void {
    // An `error` event without a listener would be thrown.
    if (this.listenerCount('error') > 0) callListener(() => this.emit('error', asError(error)))
    else warnOnce(this, error, () => this.#describe(what))
  }

  #describe(what: string | undefined): EmitterDescription {
    return { who: `worker of lock ${quote(this.#settings.key)}`, what, remedy: "worker.on('error', (error) => …)" }
  }
}
