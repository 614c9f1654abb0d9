// `leasehold/prometheus`: metrics for Prometheus. It needs `prom-client`.

import type { Registry } from 'prom-client'
import type { LockClient } from './client'

/** The options of {@link collect}. */
export interface CollectOptions {
  /** The registry for the metrics. Default: prom-client's global `register`. */
  register?: Pick<Registry, 'getSingleMetric' | 'registerMetric' | 'removeSingleMetric'> | undefined
  /**
   * The prefix of the metrics' names: up to 255 letters, digits and `_`, no digit first. Default
   * `leasehold_`.
   */
  prefix?: string | undefined
  /**
   * The labels of all series of this client, with values of 1 to 1024 bytes. Several clients in one
   * registry need the same label names with different values. A client may have the labels of a
   * closed client: the series then begin at zero. Default none.
   */
  labels?: Readonly<Record<string, string>> | undefined
}

/**
 * The result of {@link collect}. It ends with `unregister()`, not when the client is closed. If the
 * registry was cleared, it ends with the next call of {@link collect} for that registry and prefix.
 */
export interface Collection {
  /**
   * Removes this client's series from the registry. After the series of the last client, it also
   * removes the metrics.
   */
  unregister(): void
}

/**
 * Registers metrics of `client` with prom-client, such as calls, contention, waits, holds, losses,
 * errors, renewals and breakers. docs/observability.md lists all of them.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: the client, its labels or
 * a metric's name is registered there already, another client there has labels with other names, or
 * the prefix or a label is malformed
 * @throws {RangeError} `ERR_OUT_OF_RANGE`: the prefix or a label's value is too long
 * @example
 * import { collect } from 'leasehold/prometheus'
 * const locks = createLockClient('redis://localhost')
 * collect(locks)
 */
export function collect(client: LockClient, options?: CollectOptions): Collection
