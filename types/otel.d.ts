// What `leasehold/otel` has: spans and metrics of OpenTelemetry. It needs `@opentelemetry/api`, and no SDK.

import type { MeterProvider, TracerProvider } from '@opentelemetry/api'
import type { LockClient } from './client'
import type { Milliseconds } from './units'

/** What {@link instrument} takes beside the client. */
export interface InstrumentOptions {
  /** Where spans go. Default: the global one, `trace.getTracerProvider()`. */
  tracerProvider?: TracerProvider | undefined
  /** Where metrics go. Default: the global one, `metrics.getMeterProvider()`. */
  meterProvider?: MeterProvider | undefined
  /**
   * After how many ms of waiting it is looked up, once for each call, who holds the lock: 1 to 2 147 483 647, or `Infinity` for
   * never; up to twice as many, so that not all look at once. The call's span then has a link to the span of the call that got it, in whatever process, if that is instrumented,
   * too; and an event `leasehold.blocked` with the `name` of the holder and its fence. The store is asked once for all calls
   * that wait for one lock, and asked again at most every `inspectAfter` ms, or every second if that is less. Default 100.
   */
  inspectAfter?: Milliseconds | undefined
  /**
   * Whether the store is told in which trace each lease is asked for: the id of the trace and of the call's span, if that is
   * recorded, which {@link LockClient.inspect} shows to whoever may look there. Without it calls of other processes are not
   * linked to those of this client, while those of this client may be linked to theirs. Default `true`.
   */
  propagate?: boolean | undefined
}

/** What {@link instrument} began. */
export interface Instrumentation {
  /** Ends it, and the spans that are open. A second call does nothing. */
  disable(): void
}

/**
 * Makes spans and metrics of what `client` does, until it is disabled. Spans: `leasehold acquire`, `leasehold hold`,
 * `leasehold renew` and `leasehold release`, children of whatever is active where the call is made. The span of a call that
 * waited has a link to the span of whoever held the lock until then. For links between processes the store is told in
 * which trace each lease was asked for. docs/observability.md lists attributes and metrics.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: it is instrumented already, or an unknown option
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * import { instrument } from 'leasehold/otel'
 * const locks = createLockClient('redis://localhost')
 * instrument(locks)
 */
export function instrument(client: LockClient, options?: InstrumentOptions): Instrumentation
