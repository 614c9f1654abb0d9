// The metrics of one registry, and the clients that they are of.

import type { Metric, Registry } from 'prom-client'
import type * as api from '../../index'
import { badValue } from '../arguments'
import { subscribe } from '../subscription'
import { Metrics, OWN_LABELS, type Series } from './metrics'

export type Labels = Record<string, string>
export type Register = Pick<Registry, 'getSingleMetric' | 'registerMetric' | 'removeSingleMetric'>

export class Collector {
  readonly #register: Register
  readonly #prefix: string
  readonly #all = new Map<api.LockClient, Series>()
  /** Made for the first client, whose labels say how all are labelled. */
  #metrics: Metrics | undefined
  #labelNames: readonly string[] = []

  constructor(register: Register, prefix: string) {
    this.#register = register
    this.#prefix = prefix
  }

  get isEmpty(): boolean {
    return this.#all.size === 0
  }

  /** Returns what takes it out again. */
  add(client: api.LockClient, labels: Labels): () => void {
    this.#check(client, labels)
    this.#metrics ??= this.#registered(Object.keys(labels).sort())
    const metrics = this.#metrics
    const series = metrics.series(client, labels)
    this.#all.set(client, series)
    const end = subscribe(client, series.listeners)
    return () => {
      end()
      this.#all.delete(client)
      if (this.isEmpty) for (const { name } of metrics.all) this.#register.removeSingleMetric(name)
      else series.remove()
    }
  }

  #check(client: api.LockClient, labels: Labels): void {
    const where = `in this registry under the prefix ${JSON.stringify(this.#prefix)}`
    if (this.#all.has(client)) {
      throw badValue(`The client is registered already ${where}: call collect() once for each, or unregister() first`)
    }
    const names = Object.keys(labels).sort()
    const own = names.find((name) => OWN_LABELS.includes(name))
    if (own !== undefined)
      throw badValue(`"labels" may not have ${JSON.stringify(own)}: some metrics have that of their own`)
    if (this.isEmpty) return
    if (names.join() !== this.#labelNames.join()) {
      const known = this.#labelNames.length === 0 ? 'none' : this.#labelNames.join(', ')
      throw badValue(
        `Another client is registered ${where}, whose labels are ${known}: all need the same names of labels`,
      )
    }
    const [same] = [...this.#all.values()].filter((other) => names.every((name) => other.labels[name] === labels[name]))
    if (same !== undefined) {
      throw badValue(
        `Another client is registered ${where} with the same labels, so their figures could not be told apart: ` +
          `give each its own, as in { labels: { client: 'jobs' } }`,
      )
    }
  }

  #registered(labelNames: readonly string[]): Metrics {
    const metrics = new Metrics(this.#prefix, labelNames, () => this.#all.values())
    const taken = metrics.all.find(({ name }) => this.#register.getSingleMetric(name) !== undefined)
    if (taken !== undefined) {
      throw badValue(`The registry has a metric ${taken.name} of somebody else: choose another "prefix"`)
    }
    for (const { metric } of metrics.all) this.#register.registerMetric(metric as Metric)
    this.#labelNames = labelNames
    return metrics
  }
}
