// In which trace a span is, as the W3C writes it: https://www.w3.org/TR/trace-context/. The propagators of OpenTelemetry
// read and write it, too, but are in its SDK, which nobody needs for the API.

import type { SpanContext } from '@opentelemetry/api'
import { isSpanContextValid } from './peer'

/** `undefined` if it is in none. */
export function writeTrace(context: SpanContext): string | undefined {
  if (!isSpanContextValid(context)) return undefined
  const { traceId, spanId, traceFlags } = context
  // A generator of ids may write them in upper case, and the W3C does not.
  return `00-${traceId}-${spanId}-${(traceFlags & 0xff).toString(16).padStart(2, '0')}`.toLowerCase()
}

/** The span that somebody else has written, as one of another process. */
export function parseTrace(trace: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(trace ?? '') ?? []
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true }
}
