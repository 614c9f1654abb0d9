// The metrics of one registry, and the clients that they describe.

import type { Metric, Registry } from 'prom-client'
import type * as api from '../../../index'
import { LockClient } from '../../client/client'
import { subscribe } from '../../diagnostics/subscription'
import { badValue } from '../../util/arguments'
import { Metrics, OWN_LABELS, type Series } from './metrics'

export type Labels = Record<string, string>
export type Register = Pick<Registry, 'getSingleMetric' | 'registerMetric' | 'removeSingleMetric'>

interface Collected {
  readonly series: Series
  /** Stops listening to the client. */
  end(): void
}

export class Collector {
  readonly #register: Register
  readonly #prefix: string
  readonly #all = new Map<api.LockClient, Collected>()
  /** Created for the first client. The label names of that client are those of all clients. */
  #metrics: Metrics | undefined
  #labelNames: readonly string[] = []

  constructor(register: Register, prefix: string) {
    this.#register = register
    this.#prefix = prefix
  }

  get isEmpty(): boolean {
    return this.#all.size === 0
  }

  /** Whether the registry was cleared. */
  get isForgotten(): boolean {
    return this.#metrics !== undefined && !this.#metrics.all.some((own) => this.#has(own))
  }

  /** Adds a client. Returns a function that removes it. */
  add(client: api.LockClient, labels: Labels): () => void {
    const successor = this.#check(client, labels)
    if (successor !== undefined) this.#drop(successor)
    this.#metrics ??= this.#registered(Object.keys(labels).sort())
    const metrics = this.#metrics
    const series = metrics.series(client, labels)
    const collected = { series, end: subscribe(client, series.listeners) }
    this.#all.set(client, collected)
    return () => {
      if (this.#all.get(client) !== collected) return
      this.#drop(client)
      if (this.isEmpty) this.#leave()
    }
  }

  /** Returns whether only closed clients are left, with other labels than `labels`. */
  isOverFor(labels: Labels): boolean {
    const names = Object.keys(labels).sort()
    return names.join() !== this.#labelNames.join() && [...this.#all.keys()].every(LockClient.isClosed)
  }

  /** Stops listening to all clients, and removes all metrics from the registry. */
  end(): void {
    for (const client of [...this.#all.keys()]) this.#drop(client)
    this.#leave()
  }

  #leave(): void {
    for (const own of this.#metrics?.all ?? []) if (this.#has(own)) this.#register.removeSingleMetric(own.name)
  }

  #drop(client: api.LockClient): void {
    const { series, end } = this.#all.get(client) as Collected
    end()
    series.remove()
    this.#all.delete(client)
  }

  #has({ name, metric }: { readonly name: string; readonly metric: unknown }): boolean {
    return this.#register.getSingleMetric(name) === metric
  }

  /**
   * Throws if the client can't be added. Returns the closed client that it replaces, if there is
   * one.
   */
  #check(client: api.LockClient, labels: Labels): api.LockClient | undefined {
    const where = `in this registry under the prefix ${JSON.stringify(this.#prefix)}`
    if (this.#all.has(client)) {
      throw badValue(`The client is registered already ${where}: call collect() once for each, or unregister() first`)
    }
    const names = Object.keys(labels).sort()
    const own = names.find((name) => OWN_LABELS.includes(name))
    if (own !== undefined)
      throw badValue(`"labels" may not have ${JSON.stringify(own)}: some metrics have that of their own`)
    if (this.isEmpty) return undefined
    if (names.join() !== this.#labelNames.join()) {
      const known = this.#labelNames.length === 0 ? 'none' : this.#labelNames.join(', ')
      throw badValue(
        `Another client is registered ${where}, whose labels are ${known}: all need the same names of labels`,
      )
    }
    const same = [...this.#all].find(([, { series }]) =>
      names.every((name) => series.labels[name] === labels[name]),
    )?.[0]
    if (same !== undefined && !LockClient.isClosed(same)) {
      throw badValue(
        `Another client is registered ${where} with the same labels, so their figures could not be told apart: ` +
          `give each its own, as in { labels: { client: 'jobs' } }`,
      )
    }
    return same
  }

  #registered(labelNames: readonly string[]): Metrics {
    const metrics = new Metrics(this.#prefix, labelNames, () => [...this.#all.values()].map(({ series }) => series))
    const taken = metrics.all.find(({ name }) => this.#register.getSingleMetric(name) !== undefined)
    if (taken !== undefined) {
      throw badValue(`The registry has a metric ${taken.name} that is not of leasehold: choose another "prefix"`)
    }
    for (const { metric } of metrics.all) this.#register.registerMetric(metric as Metric)
    this.#labelNames = labelNames
    return metrics
  }
}
