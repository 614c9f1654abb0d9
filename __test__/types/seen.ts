// Code with the channels, `leasehold/otel` and `leasehold/prometheus` that the compiler must
// accept, and code that it must refuse.

import { subscribe, tracingChannel } from 'node:diagnostics_channel'
import { type AcquireMessage, createLockClient, type LeaseholdChannels } from 'leasehold'
import * as otel from 'leasehold/otel'
import * as prometheus from 'leasehold/prometheus'
import { type OpenMetricsContentType, Registry } from 'prom-client'
import { same } from './equal'

const locks = createLockClient('memory:types')

subscribe('leasehold:lost', (message) => {
  const { key, reason, held } = message as LeaseholdChannels['leasehold:lost']
  console.error(key.length, reason, held)
})
tracingChannel<AcquireMessage>('leasehold:acquire').subscribe({
  start() {},
  end() {},
  asyncStart() {},
  asyncEnd: ({ outcome, duration }) => console.log(outcome, duration),
  error: ({ error }) => console.error(error),
})

otel.instrument(locks).disable()
otel.instrument(locks, { inspectAfter: 500, propagate: false })
// @ts-expect-error: no such option
otel.instrument(locks, { links: true })
locks.inspect('key').then((info) => {
  const traces: (string | undefined)[] = [info?.trace, info?.leases[0]?.trace, info?.waiters[0]?.trace]
  console.log(traces)
})

prometheus.collect(locks, { register: new Registry(), prefix: 'my_', labels: { client: 'jobs' } }).unregister()
declare const openMetrics: Registry<OpenMetricsContentType>
prometheus.collect(locks, { register: openMetrics })
// @ts-expect-error: labels are strings
prometheus.collect(locks, { labels: { client: 1 } })

declare const message: AcquireMessage
// @ts-expect-error: no message has a token
message.token
same<'result' extends keyof AcquireMessage ? true : false, false>()
