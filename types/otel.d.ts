// `leasehold/otel`: spans and metrics of OpenTelemetry. It needs `@opentelemetry/api`, and no SDK.

import type { MeterProvider, TracerProvider } from '@opentelemetry/api'
import type { LockClient } from './client'
import type { Milliseconds } from './units'

/** The options of {@link instrument}. */
export interface InstrumentOptions {
  /** Where spans go. Default: the global one, `trace.getTracerProvider()`. */
  tracerProvider?: TracerProvider | undefined
  /** Where metrics go. Default: the global one, `metrics.getMeterProvider()`. */
  meterProvider?: MeterProvider | undefined
  /**
   * How long a call waits before the client looks up who holds the lock, once for each call, in ms:
   * 1 to 2 147 483 647, or `Infinity` for never. The time is up to twice as long, so that not all
   * clients ask at once. The call's span then has a link to the span of the call that holds the
   * lock, in any process, if that call is instrumented, too. The span also has an event
   * `leasehold.blocked` with the `name` of the holder and its fence. The client asks the store once
   * for all calls that wait for one lock, and again at most every `inspectAfter` ms, or every
   * second if that is less. Default 100.
   */
  inspectAfter?: Milliseconds | undefined
  /**
   * Whether the client tells the store in which trace each call is: the ids of the trace and of the
   * call's span, if the span is recorded. {@link LockClient.inspect} shows them to every user who
   * may read locks. If `false`, calls of other processes have no links to calls of this client, but
   * calls of this client may have links to theirs. Default `true`.
   */
  propagate?: boolean | undefined
}

/** The result of {@link instrument}. */
export interface Instrumentation {
  /** Ends the instrumentation, and the open spans. A second call does nothing. */
  disable(): void
}

/**
 * Creates spans and metrics of what `client` does, until you disable it. The spans are `leasehold
 * acquire`, `leasehold hold`, `leasehold renew` and `leasehold release`, children of the span that
 * is active at the call. The span of a call that waited has a link to the span of the holder. For
 * links between processes, the client tells the store in which trace each call is.
 * docs/observability.md lists attributes and metrics.
 *
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, or `ERR_INVALID_ARG_VALUE`: the client is
 * instrumented already, or an option is unknown
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * import { instrument } from 'leasehold/otel'
 * const locks = createLockClient('redis://localhost')
 * instrument(locks)
 */
export function instrument(client: LockClient, options?: InstrumentOptions): Instrumentation
