// Measures what leasehold costs without and with listeners to its events. All rows run the same
// acquires and releases.

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

/** Listens to all calls and leases. */
function listenToAll() {
  for (const call of ['acquire', 'renew', 'release']) {
    diagnostics
      .tracingChannel(`leasehold:${call}`)
      .subscribe({ start() {}, end() {}, asyncStart() {}, asyncEnd() {}, error() {} })
  }
  for (const name of ['granted', 'released', 'lost']) diagnostics.subscribe(`leasehold:${name}`, () => {})
}

/** Makes and ends spans, which are then dropped. */
function instrument(locks, tracerProvider) {
  const { MeterProvider } = require('@opentelemetry/sdk-metrics')
  require('../dist/integrations/otel.js').instrument(locks, { tracerProvider, meterProvider: new MeterProvider() })
}

export const listening = [
  { ...ours, name: 'no listeners' },
  heard('losses only', () => diagnostics.subscribe('leasehold:lost', () => {})),
  heard('every channel', listenToAll),
  heard('prometheus', (locks) => {
    require('../dist/integrations/prometheus.js').collect(locks, { register: new (require('prom-client').Registry)() })
  }),
  heard('otel, metrics', (locks) => instrument(locks)),
  heard('otel, metrics and spans', (locks) => {
    instrument(locks, new (require('@opentelemetry/sdk-trace-base').BasicTracerProvider)())
  }),
]
