// What `leasehold/otel` has: spans and metrics of OpenTelemetry. It needs `@opentelemetry/api`, and no SDK.

import type { MeterProvider, TracerProvider } from '@opentelemetry/api'
import type { LockClient } from './client'

/** What {@link instrument} takes beside the client. */
export interface InstrumentOptions {
  /** Where spans go. Default: the global one, `trace.getTracerProvider()`. */
  tracerProvider?: TracerProvider | undefined
  /** Where metrics go. Default: the global one, `metrics.getMeterProvider()`. */
  meterProvider?: MeterProvider | undefined
  /**
   * After how many ms of waiting it is looked up, once for each call, who holds the lock: 1 to 2 147 483 647, or `Infinity` for
   * never. The call's span then has an event `leasehold.blocked` with the `name` of the holder and its fence, which is in the
   * attributes of that holder's spans, too, in whatever process. One more question to the store each time. Default `Infinity`.
   */
  inspectAfter?: number | undefined
}

/** What {@link instrument} began. */
export interface Instrumentation {
  /** Ends it, and the spans that are open. A second call does nothing. */
  disable(): void
}

/**
 * Makes spans and metrics of what `client` does, until it is disabled. Spans: `leasehold acquire`, `leasehold hold`,
 * `leasehold renew` and `leasehold release`, children of whatever is active where the call is made. The span of a call that
 * waited has a link to the span of whoever held the lock until then, if that was in this process.
 * docs/observability.md lists attributes and metrics.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: it is instrumented already, or an unknown option
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * import { instrument } from 'leasehold/otel'
 * const locks = createLockClient('redis://localhost')
 * instrument(locks)
 */
export function instrument(client: LockClient, options?: InstrumentOptions): Instrumentation
