// Loads what `leasehold/prometheus` uses of prom-client.

import { loadPeer } from '../../util/load-peer'

const load = (): typeof import('prom-client') => require('prom-client')

export type Counter = import('prom-client').Counter
export type Histogram = import('prom-client').Histogram

export const { Counter, Gauge, Histogram, register } = loadPeer('prom-client', 'leasehold/prometheus', load)
