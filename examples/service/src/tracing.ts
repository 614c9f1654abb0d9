// Sends spans of requests and locks to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names.
// main.ts loads this file only if there is one.

import { context, propagation, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { resourceFromAttributes } from '@opentelemetry/resources'
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import type { RequestHandler } from 'express'
import type { LockClient } from 'leasehold'
import { instrument } from 'leasehold/otel'
import type { Config } from './config.js'
import { routeOf } from './requests.js'

export interface Tracing {
  /** Makes a span for each request. The spans of its locks are children of that span. */
  readonly requests: RequestHandler
  /** Sends the remaining spans. */
  stop(): Promise<void>
}

export function startTracing({ instance }: Config, locks: LockClient): Tracing {
  const service = process.env.OTEL_SERVICE_NAME || 'leasehold-example-service'
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ 'service.name': service, 'service.instance.id': instance }),
    spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
  })
  provider.register()
  instrument(locks)
  const tracer = trace.getTracer(service)

  const requests: RequestHandler = (request, response, next) => {
    const { method } = request
    const caller = propagation.extract(context.active(), request.headers)
    tracer.startActiveSpan(method, { kind: SpanKind.SERVER }, caller, (span) => {
      response.once('close', () => {
        span.updateName(`${method} ${routeOf(request)}`)
        span.setAttributes({ 'http.request.method': method, 'http.response.status_code': response.statusCode })
        if (response.statusCode >= 500) span.setStatus({ code: SpanStatusCode.ERROR })
        span.end()
      })
      next()
    })
  }
  return { requests, stop: () => provider.shutdown() }
}
