// The metrics, and the series of one client among them. Figures of stats() are read at each scrape;
// the others are counted as the channels report them.

import type * as api from '../../../index'
import type { Listeners } from '../../diagnostics/subscription'
import { Counter, Gauge, Histogram } from './peer'

type Labels = Record<string, string>

/** The limits of the buckets, in s: from a hand-off within the process to a very long wait. */
const BUCKETS = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60]

/** The names of the metrics' own labels. */
export const OWN_LABELS: readonly string[] = ['outcome', 'mode', 'reason', 'via', 'store', 'le']

const LOSS_REASONS: readonly api.LossReason[] = ['expired', 'taken', 'missing', 'stalled', 'closed']
const STATES: Record<api.StoreHealth['state'], number> = { closed: 0, refusing: 1, 'half-open': 2, open: 3 }

/** A metric with its full name. The user chooses its labels, so their type is not known. */
interface Named {
  readonly name: string
  readonly metric: unknown
}

type CountedMetric = Counter | Histogram

export class Metrics {
  readonly all: Named[] = []
  readonly acquires: Counter
  readonly contended: Counter
  readonly timeouts: Counter
  readonly lost: Counter
  readonly errors: Counter
  readonly wait: Histogram
  readonly hold: Histogram
  readonly #prefix: string
  readonly #labelNames: readonly string[]
  readonly #clients: () => Iterable<Series>

  constructor(prefix: string, labelNames: readonly string[], clients: () => Iterable<Series>) {
    this.#prefix = prefix
    this.#labelNames = labelNames
    this.#clients = clients
    this.acquires = this.#counter('acquires_total', 'Calls for locks, by what came of them', ['outcome', 'mode'])
    this.contended = this.#counterOf(
      'contended_total',
      'Calls that found their lock held or awaited by another client',
      ({ stats, contended }) => stats.waited + contended,
    )
    this.timeouts = this.#counter(
      'timeouts_total',
      'Calls whose lock was held by other clients for all of their wait',
      [],
    )
    this.lost = this.#counter('lost_total', 'Leases that were lost', ['reason'])
    this.errors = this.#counter('errors_total', 'Calls that failed because of the store', ['reason'])
    this.wait = this.#histogram('wait_seconds', 'How long calls for locks took, whatever came of them', ['outcome'])
    this.hold = this.#histogram('hold_seconds', 'How long leases were held', ['outcome'])
    this.#counterOf('granted_total', 'Leases granted', ({ stats }) => stats.acquired)
    this.#counterOf('released_total', 'Leases given back', ({ stats }) => stats.released)
    this.#counterOf('renewals_total', 'Successful renewals', ({ stats }) => stats.renewals)
    this.#counterOf(
      'store_errors_total',
      'Requests that the store did not answer, or with an error',
      ({ stats }) => stats.errors,
    )
    this.#handOffs()
    this.#gauge('held', 'Leases held now', ({ stats }) => stats.held)
    this.#gauge('waiting', 'Calls for locks that are pending now', ({ stats }) => stats.waiting)
    this.#breakers()
  }

  /** Returns the series of `client`. */
  series(client: api.LockClient, labels: Labels): Series {
    return new Series(this, client, labels)
  }

  #named(name: string, help: string, own: readonly string[]) {
    // The collector registers all metrics together.
    return { name: this.#prefix + name, help, labelNames: [...this.#labelNames, ...own], registers: [] }
  }

  #added<M extends object>(name: string, metric: M): M {
    this.all.push({ name: this.#prefix + name, metric })
    return metric
  }

  #counter(name: string, help: string, own: readonly string[]): Counter {
    return this.#added(name, new Counter(this.#named(name, help, own)))
  }

  #histogram(name: string, help: string, own: readonly string[]): Histogram {
    return this.#added(name, new Histogram({ ...this.#named(name, help, own), buckets: BUCKETS }))
  }

  /** Adds a counter that reads its value from the clients. */
  #counterOf(name: string, help: string, read: (now: ClientFigures) => number): Counter {
    const clients = this.#clients
    const counter: Counter = new Counter({
      ...this.#named(name, help, []),
      collect() {
        this.reset()
        for (const series of clients()) this.inc(series.labels, read(series))
      },
    })
    return this.#added(name, counter)
  }

  #gauge(name: string, help: string, read: (now: ClientFigures) => number): void {
    const clients = this.#clients
    const gauge = new Gauge({
      ...this.#named(name, help, []),
      collect() {
        this.reset()
        for (const series of clients()) this.set(series.labels, read(series))
      },
    })
    this.#added(name, gauge)
  }

  #handOffs(): void {
    const clients = this.#clients
    const name = 'hand_offs_total'
    const help = 'Leases handed from one who gave it back to one who waited: within the process, or by the store'
    const counter = new Counter({
      ...this.#named(name, help, ['via']),
      collect() {
        this.reset()
        for (const { labels, stats } of clients()) {
          this.inc({ ...labels, via: 'process' }, stats.localHandOffs)
          this.inc({ ...labels, via: 'store' }, stats.remoteHandOffs)
        }
      },
    })
    this.#added(name, counter)
  }

  #breakers(): void {
    const clients = this.#clients
    const name = 'breaker_state'
    const gauge = new Gauge({
      ...this.#named(
        name,
        'The circuit breaker before a server: 0 closed, 1 refusing (it answers, and can not be used), 2 half-open, 3 open',
        ['store'],
      ),
      collect() {
        // Drop the series of servers that are no longer known.
        this.reset()
        for (const { labels, stats } of clients()) {
          for (const { store, state } of stats.stores) this.set({ ...labels, store }, STATES[state])
        }
      },
    })
    this.#added(name, gauge)
  }
}

interface ClientFigures {
  readonly stats: api.LockStats
  /** Calls that found another holder, in addition to those that stats() counts. */
  readonly contended: number
}

/** The series of one client. */
export class Series implements ClientFigures {
  readonly labels: Labels
  contended = 0
  readonly #metrics: Metrics
  readonly #client: api.LockClient
  /**
   * The labels in use, by metric and by own labels. They are created once, and removed at the end.
   */
  readonly #used = new Map<CountedMetric, Map<string, Labels>>()

  constructor(metrics: Metrics, client: api.LockClient, labels: Labels) {
    this.#metrics = metrics
    this.#client = client
    this.labels = labels
    // Begin at 0: otherwise a first increase is not visible.
    for (const reason of LOSS_REASONS) metrics.lost.inc(this.#labelled(metrics.lost, reason, { reason }), 0)
    for (const outcome of ['acquired', 'busy', 'timeout', 'unavailable']) {
      const own = { outcome, mode: 'exclusive' }
      metrics.acquires.inc(this.#labelled(metrics.acquires, `${outcome} exclusive`, own), 0)
    }
    for (const reason of ['unreachable', 'timeout']) {
      metrics.errors.inc(this.#labelled(metrics.errors, reason, { reason }), 0)
    }
    metrics.timeouts.inc(this.#labelled(metrics.timeouts, '', {}), 0)
  }

  get stats(): api.LockStats {
    return this.#client.stats()
  }

  readonly listeners: Listeners = {
    acquireSettled: (message) => this.#acquireSettled(message),
    ended: (message) => this.#ended(message),
    renewSettled: (message) => this.#failed(message),
    releaseSettled: (message) => this.#failed(message),
  }

  /**
   * Removes the series from the counted metrics. Metrics that read from clients forget the client
   * by themselves.
   */
  remove(): void {
    for (const [metric, used] of this.#used) {
      for (const labels of used.values()) metric.remove(labels)
    }
  }

  #labelled(metric: CountedMetric, which: string, own: Labels): Labels {
    let used = this.#used.get(metric)
    if (used === undefined) {
      used = new Map()
      this.#used.set(metric, used)
    }
    let labels = used.get(which)
    if (labels === undefined) {
      labels = { ...this.labels, ...own }
      used.set(which, labels)
    }
    return labels
  }

  #acquireSettled(message: api.AcquireMessage): void {
    const { acquires, wait, timeouts } = this.#metrics
    const { outcome = 'failed', mode, tries, duration = 0 } = message
    acquires.inc(this.#labelled(acquires, `${outcome} ${mode}`, { outcome, mode }))
    wait.observe(this.#labelled(wait, outcome, { outcome }), duration / 1000)
    if (outcome === 'timeout') timeouts.inc(this.#labelled(timeouts, '', {}))
    if (outcome === 'timeout' || outcome === 'busy' || (outcome === 'acquired' && tries > 1)) this.contended++
    this.#failed(message)
  }

  #ended({ outcome = 'released', held = 0, reason = 'expired' }: api.LeaseMessage): void {
    const { hold, lost } = this.#metrics
    hold.observe(this.#labelled(hold, outcome, { outcome }), held / 1000)
    if (outcome === 'lost') lost.inc(this.#labelled(lost, reason, { reason }))
  }

  #failed({ outcome, reason = 'internal' }: api.Ending<string>): void {
    const { errors } = this.#metrics
    if (outcome === 'unavailable') errors.inc(this.#labelled(errors, reason, { reason }))
  }
}
