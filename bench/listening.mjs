// What leasehold costs when nobody listens to what it tells, and when somebody does. All rows acquire and release the same.

import diagnostics from 'node:diagnostics_channel'
import { createRequire } from 'node:module'
import { subjects } from './peers.mjs'

const require = createRequire(import.meta.url)
const TTL = 10_000

const [ours] = subjects

function heard(name, listen) {
  return {
    name,
    kind: 'heard',
    open({ port }) {
      const locks = require('..').createLockClient({ store: `redis://127.0.0.1:${port}`, ttl: TTL })
      listen(locks)
      return { acquire: (key) => locks.acquire(key), release: (lease) => lease.release(), close: () => locks.close() }
    },
  }
}

/** To the calls and leases, as whoever wants to know everything would. */
function listenToAll() {
  for (const call of ['acquire', 'renew', 'release']) {
    diagnostics
      .tracingChannel(`leasehold:${call}`)
      .subscribe({ start() {}, end() {}, asyncStart() {}, asyncEnd() {}, error() {} })
  }
  for (const name of ['granted', 'released', 'lost']) diagnostics.subscribe(`leasehold:${name}`, () => {})
}

/** Spans are made and ended, and then nobody wants them. */
function instrument(locks, tracerProvider) {
  const { MeterProvider } = require('@opentelemetry/sdk-metrics')
  require('../dist/otel.js').instrument(locks, { tracerProvider, meterProvider: new MeterProvider() })
}

export const listening = [
  { ...ours, name: 'nobody listens' },
  heard('losses only', () => diagnostics.subscribe('leasehold:lost', () => {})),
  heard('every channel', listenToAll),
  heard('prometheus', (locks) => {
    require('../dist/prometheus.js').collect(locks, { register: new (require('prom-client').Registry)() })
  }),
  heard('otel, metrics', (locks) => instrument(locks)),
  heard('otel, metrics and spans', (locks) => {
    instrument(locks, new (require('@opentelemetry/sdk-trace-base').BasicTracerProvider)())
  }),
]
