// How a worker asks for its lock: at once, or in the queue, with rests in between.

import { setTimeout as sleep } from 'node:timers/promises'
import { LockClient } from '../client/client'
import { LockAbortedError, LockClosedError, LockLostError, LockTimeoutError } from '../diagnostics/errors'
import type { Lease } from '../lock/lease'
import type { LeaseObserver } from '../lock/lease-owner'
import { Flag, WorkerEvent } from '../native/protocol'
import { ignore } from '../util/deferred'
import { setImmediate } from '../util/real-timers'
import type { WorkerClient } from './worker-client'
import type { WorkerSettings } from './worker-options'

const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))

/** The lease, or the events to send to the state machine instead. */
export type CampaignResult = Lease | readonly number[]

type Settings = Pick<WorkerSettings, 'key' | 'ttl' | 'retryInterval'>

export class Campaign {
  readonly #client: WorkerClient
  readonly #settings: Settings
  readonly #observer: LeaseObserver
  readonly #failed: (error: unknown) => void
  /** Aborts the requests for the lock, and the pauses between them. */
  #controller = new AbortController()

  /** `observer` observes the leases. `failed` is called for errors of the store. */
  constructor(client: WorkerClient, settings: Settings, observer: LeaseObserver, failed: (error: unknown) => void) {
    this.#client = client
    this.#settings = settings
    this.#observer = observer
    this.#failed = failed
  }

  /** Asks for the lock once. */
  try(): Promise<CampaignResult> {
    return this.#ask(-1)
  }

  /**
   * Waits in the queue without a limit. A queued request does not report that the store can't be
   * reached, so this checks the store at each `retryInterval`, and reports its errors.
   */
  async queue(): Promise<CampaignResult> {
    const { signal } = this.#controller
    const checks = setInterval(() => {
      this.#client.current?.ready().catch((error) => {
        if (!signal.aborted) this.#failed(error)
      })
    }, this.#settings.retryInterval)
    checks.unref()
    try {
      return await this.#ask(Number.POSITIVE_INFINITY)
    } finally {
      clearInterval(checks)
    }
  }

  /** Resolves after `retryInterval`, or when the campaign is cancelled. */
  async rest(): Promise<void> {
    const { signal } = this.#controller
    await sleep(this.#settings.retryInterval, undefined, { signal }).catch(ignore)
  }

  /** Ends the current request or rest. The next one is not affected. */
  cancel(): void {
    this.#controller.abort()
    this.#controller = new AbortController()
  }

  async #ask(wait: number): Promise<CampaignResult> {
    const { signal } = this.#controller
    try {
      const acquirer = LockClient.acquirerOf(this.#client.open)
      this.#client.watchClose()
      const { key, ttl = acquirer.defaults.ttl } = this.#settings
      const flags = Flag.ReportRenewals | Flag.Section
      const request = { ...acquirer.defaults, ttl, wait, flags, signal }
      return (await acquirer.request(key, request, this.#observer)) ?? [WorkerEvent.Busy]
    } catch (error) {
      if (error instanceof LockTimeoutError || error instanceof LockLostError) return [WorkerEvent.Busy]
      if (error instanceof LockAbortedError) return [WorkerEvent.Unavailable]
      this.#failed(error)
      if (!(error instanceof LockClosedError)) return [WorkerEvent.Unavailable]
      // A closed client stays closed, so the worker stops. It stops in the next turn of the event
      // loop: otherwise a listener that starts an idle worker again would block the loop.
      await nextTurn()
      return [WorkerEvent.Stop, WorkerEvent.Unavailable]
    }
  }
}
