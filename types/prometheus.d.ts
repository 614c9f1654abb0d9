// What `leasehold/prometheus` has: metrics for Prometheus. It needs `prom-client`.

import type { Registry } from 'prom-client'
import type { LockClient } from './client'

/** What {@link collect} takes beside the client. */
export interface CollectOptions {
  /** Where the metrics are registered. Default: prom-client's global `register`. */
  register?: Pick<Registry, 'getSingleMetric' | 'registerMetric' | 'removeSingleMetric'> | undefined
  /** What the metrics' names begin with: letters, digits and `_`, no digit first. Default `leasehold_`. */
  prefix?: string | undefined
  /**
   * Labels of all this client's series. Several clients in one registry need the same names of labels with different values, to
   * tell them apart; but a client may have those of one that was closed, whose series begin anew with it. Default none.
   */
  labels?: Readonly<Record<string, string>> | undefined
}

/** What {@link collect} began. It ends with `unregister()`, not by closing the client; where the registry was cleared, with the next call there. */
export interface Collection {
  /** Takes this client's series out of the registry; with those of the last client the metrics themselves. */
  unregister(): void
}

/**
 * Registers metrics of `client` with prom-client: calls, contention, waits, holds, losses, errors, renewals, breakers.
 * docs/observability.md lists them.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: the client, its labels or a metric's name is registered
 * there already, or a malformed prefix or label
 * @example
 * import { collect } from 'leasehold/prometheus'
 * const locks = createLockClient('redis://localhost')
 * collect(locks)
 */
export function collect(client: LockClient, options?: CollectOptions): Collection
