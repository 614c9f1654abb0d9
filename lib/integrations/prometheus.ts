// The entry `leasehold/prometheus`: metrics for prom-client. See types/prometheus.d.ts.

import type { LockClient as ClientType } from '../../types/client'
import type * as api from '../../types/prometheus'
import { LockClient } from '../client/client'
import { otherCopy } from '../client/store/foreign-client'
import { badType, badValue, checkText, inCall, readOptions } from '../util/arguments'
import { shownText } from '../util/shown-text'
import { Collector, type Labels, type Register } from './prometheus/collector'
import { register as globalRegister } from './prometheus/peer'

const OPTIONS = ['register', 'prefix', 'labels'] as const satisfies (keyof api.CollectOptions)[]

/** The collectors by registry, and then by prefix. */
const collectors = new WeakMap<Register, Map<string, Collector>>()

export function collect(client: ClientType, given: api.CollectOptions = {}): api.Collection {
  return inCall('collect', () => begin(client, given))
}

function begin(client: ClientType, given: api.CollectOptions): api.Collection {
  if (!(client instanceof LockClient)) {
    throw badType('client', 'a LockClient made by createLockClient()', client, otherCopy(client))
  }
  const options = readOptions<api.CollectOptions>(given, OPTIONS)
  const { register = globalRegister, prefix = 'leasehold_', labels = {} } = options
  if (typeof register?.registerMetric !== 'function') throw badType('register', 'a Registry of prom-client', register)
  checkText('prefix', prefix, 0, 255)
  if (prefix !== '' && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(prefix)) {
    throw badValue(`"prefix" may have letters, digits and "_", and no digit first: ${shownText(prefix)}`)
  }
  checkLabels(labels)
  const collector = collectorOf(register, prefix, labels)
  const end = collector.add(client, { ...labels })
  let ended = false
  return {
    unregister() {
      if (ended) return
      ended = true
      end()
      const known = collectors.get(register)
      if (collector.isEmpty && known?.get(prefix) === collector) known.delete(prefix)
    },
  }
}

function collectorOf(register: Register, prefix: string, labels: Labels): Collector {
  let known = collectors.get(register)
  if (known === undefined) {
    known = new Map()
    collectors.set(register, known)
  }
  let collector = known.get(prefix)
  // Replace a collector that has no clients (after a mistake in the labels), or whose registry was
  // cleared (between tests).
  if (collector === undefined || collector.isEmpty || collector.isForgotten || collector.isOverFor(labels)) {
    collector?.end()
    collector = new Collector(register, prefix)
    known.set(prefix, collector)
  }
  return collector
}

function checkLabels(labels: unknown): asserts labels is Labels {
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) {
    throw badType('labels', 'of type object', labels)
  }
  for (const [name, value] of Object.entries(labels)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || name.startsWith('__')) {
      throw badValue(`"labels" has a name that Prometheus does not allow: ${shownText(name)}`)
    }
    checkText(`labels.${name}`, value, 1, 1024)
  }
}
