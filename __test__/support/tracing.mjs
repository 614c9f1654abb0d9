// Tracers of OpenTelemetry's SDK that keep their spans, and clients that use them.

import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base'
import { instrument } from 'leasehold/otel'
import { atEnd } from './endings.mjs'

/**
 * Returns a provider of tracers, the spans that were begun, and those that have ended, in the order
 * of their ends.
 */
export function tracing(settings = {}) {
  const begun = []
  const spans = []
  const processor = {
    onStart: (span) => begun.push(span),
    onEnd: (span) => spans.push(span),
    forceFlush: async () => {},
    shutdown: async () => {},
  }
  const tracerProvider = new BasicTracerProvider({ ...settings, spanProcessors: [processor] })
  return { tracerProvider, begun, spans, named: (name) => spans.filter((span) => span.name === `leasehold ${name}`) }
}

/** Returns a client that is instrumented until the test ends. */
export function instrumented(t, locks, options) {
  const instrumentation = instrument(locks, options)
  atEnd(t, () => instrumentation.disable())
  return locks
}

/** Returns what the store shows of a span's call. */
export function traceparent({ traceId, spanId }) {
  return `00-${traceId}-${spanId}-01`
}
