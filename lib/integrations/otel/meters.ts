// The metrics of one client. Times are in seconds, as OpenTelemetry's conventions require. Keys are
// no attributes: there may be a million of them.

import type { Attributes, BatchObservableCallback, Meter, Observable } from '@opentelemetry/api'
import type * as api from '../../../index'
import type { Listeners } from '../../diagnostics/subscription'
import { failureAttributes, storeAttributes } from './attributes'

/** The limits of the buckets, in s: from a hand-off within the process to a very long wait. */
export const BOUNDARIES = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60,
]

/**
 * 1 if locks come from a server in this state. A server that refuses answers, but grants nothing.
 */
const breakerStates: Record<api.StoreHealth['state'], number> = { closed: 1, 'half-open': 0, open: 0, refusing: 0 }

export class Meters {
  readonly #meter: Meter
  readonly #acquire
  readonly #hold
  readonly #release
  readonly #lost
  readonly #timeouts
  readonly #errors
  readonly #observed: Observable[]
  readonly #observe: BatchObservableCallback

  constructor(meter: Meter, { client, name, store }: api.ClientMessage) {
    this.#meter = meter
    const histogram = (name: string, description: string) =>
      meter.createHistogram(name, { unit: 's', description, advice: { explicitBucketBoundaries: BOUNDARIES } })
    this.#acquire = histogram('leasehold.acquire.duration', 'How long calls for locks took, whatever came of them')
    this.#hold = histogram('leasehold.hold.duration', 'How long leases were held')
    this.#release = histogram('leasehold.release.duration', 'How long it took to give leases back')
    this.#lost = meter.createCounter('leasehold.lost', { unit: '{lease}', description: 'Leases that were lost' })
    this.#timeouts = meter.createCounter('leasehold.timeouts', {
      unit: '{call}',
      description: 'Calls whose lock was held by other clients for all of their wait',
    })
    this.#errors = meter.createCounter('leasehold.errors', {
      unit: '{call}',
      description: 'Calls that failed because of the store',
    })
    const held = meter.createObservableUpDownCounter('leasehold.held', {
      unit: '{lease}',
      description: 'Leases held now',
    })
    const waiting = meter.createObservableUpDownCounter('leasehold.waiting', {
      unit: '{call}',
      description: 'Calls for locks that are pending now',
    })
    const waited = meter.createObservableCounter('leasehold.waited', {
      unit: '{lease}',
      description: 'Leases for which a call had to wait in the queue',
    })
    const renewals = meter.createObservableCounter('leasehold.renewals', {
      unit: '{renewal}',
      description: 'Successful renewals',
    })
    const available = meter.createObservableGauge('leasehold.store.available', {
      unit: '1',
      description:
        'Whether a server of the store is fit for use: 1, or 0 if it is out of reach or answers that it can not be used',
    })
    this.#observed = [held, waiting, waited, renewals, available]
    this.#observe = (result) => {
      const stats = client.stats()
      // The attributes of several clients of a process have to differ.
      const attributes = { ...storeAttributes(store), 'leasehold.client.name': name }
      result.observe(held, stats.held, attributes)
      result.observe(waiting, stats.waiting, attributes)
      result.observe(waited, stats.waited, attributes)
      result.observe(renewals, stats.renewals, attributes)
      for (const server of stats.stores) {
        result.observe(available, breakerStates[server.state], { ...attributes, 'leasehold.server': server.store })
      }
    }
    meter.addBatchObservableCallback(this.#observe, this.#observed)
  }

  readonly listeners: Listeners = {
    acquireSettled: (message) => this.#acquireSettled(message),
    ended: (message) => this.#ended(message),
    renewSettled: (message) => this.#failed(message, message.lease.store),
    releaseSettled: (message) => {
      const { lease, outcome, duration = 0 } = message
      this.#release.record(duration / 1000, this.#attributes(lease.store, { 'leasehold.outcome': outcome }, message))
      this.#failed(message, lease.store)
    },
  }

  end(): void {
    this.#meter.removeBatchObservableCallback(this.#observe, this.#observed)
  }

  #attributes(store: api.StoreIdentity, more: Attributes, message: api.Ending<string>): Attributes {
    return { ...storeAttributes(store), ...more, ...failureAttributes(message) }
  }

  #acquireSettled(message: api.AcquireMessage): void {
    const { outcome, mode, store, duration = 0 } = message
    const more = { 'leasehold.outcome': outcome, 'leasehold.mode': mode }
    this.#acquire.record(duration / 1000, this.#attributes(store, more, message))
    if (outcome === 'timeout') this.#timeouts.add(1, this.#attributes(store, {}, message))
    this.#failed(message, store)
  }

  #ended(message: api.LeaseMessage): void {
    const { outcome, mode, store, held = 0 } = message
    const more = { 'leasehold.outcome': outcome, 'leasehold.mode': mode }
    this.#hold.record(held / 1000, this.#attributes(store, more, message))
    if (outcome === 'lost') this.#lost.add(1, this.#attributes(store, {}, message))
  }

  #failed(message: api.Ending<string>, store: api.StoreIdentity): void {
    if (message.outcome === 'unavailable') this.#errors.add(1, this.#attributes(store, {}, message))
  }
}
