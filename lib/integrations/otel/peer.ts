// Loads what `leasehold/otel` uses of the API of OpenTelemetry.

import { loadPeer } from '../../util/load-peer'

const load = (): typeof import('@opentelemetry/api') => require('@opentelemetry/api')

export type SpanKind = import('@opentelemetry/api').SpanKind

export const { isSpanContextValid, metrics, SpanKind, SpanStatusCode, trace } = loadPeer(
  '@opentelemetry/api',
  'leasehold/otel',
  load,
)
