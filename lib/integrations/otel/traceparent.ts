// Reads and writes `traceparent` headers: https://www.w3.org/TR/trace-context/. The propagators of
// OpenTelemetry do this, too, but they are part of its SDK, and programs may only have the API.

import type { SpanContext } from '@opentelemetry/api'
import { isSpanContextValid } from './peer'

/** Returns the header of a span; `undefined` if the span is in no trace. */
export function writeTrace(context: SpanContext): string | undefined {
  if (!isSpanContextValid(context)) return undefined
  const { traceId, spanId, traceFlags } = context
  // A generator of ids may write them in upper case, and the W3C does not.
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`.toLowerCase()
}

/**
 * Returns the span in a header, as a span of another process; `undefined` if the header is not
 * valid.
 */
export function parseTrace(trace: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(trace ?? '') ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
}
