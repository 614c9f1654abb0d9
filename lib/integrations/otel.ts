// The entry `leasehold/otel`: spans and metrics of OpenTelemetry for one client, made from the
// messages of the diagnostics channels. See types/otel.d.ts.

import type { LockClient as ClientType } from '../../types/client'
import type * as api from '../../types/otel'
import { LockClient } from '../client/client'
import { otherCopy } from '../client/store/foreign-client'
import { subscribe } from '../diagnostics/subscription'
import { badType, badValue, checkBoolean, checkMsOrInfinity, inCall, readOptions } from '../util/arguments'
import { Meters } from './otel/meters'
import { metrics, trace } from './otel/peer'
import { Spans } from './otel/spans'

const OPTIONS = [
  'tracerProvider',
  'meterProvider',
  'inspectAfter',
  'propagate',
] as const satisfies (keyof api.InstrumentOptions)[]
const NAME = 'leasehold'
const VERSION: string = require('../../package.json').version

const instrumented = new WeakSet<LockClient>()

export function instrument(client: ClientType, given: api.InstrumentOptions = {}): api.Instrumentation {
  return inCall('instrument', () => begin(client, given))
}

function begin(client: ClientType, given: api.InstrumentOptions): api.Instrumentation {
  if (!(client instanceof LockClient)) {
    throw badType('client', 'a LockClient made by createLockClient()', client, otherCopy(client))
  }
  const options = readOptions<api.InstrumentOptions>(given, OPTIONS)
  const { inspectAfter = 100, propagate = true } = options
  checkMsOrInfinity('inspectAfter', inspectAfter, 1)
  checkBoolean('propagate', propagate)
  const { tracerProvider = trace.getTracerProvider(), meterProvider = metrics.getMeterProvider() } = options
  if (instrumented.has(client)) {
    throw badValue('The client is instrumented already: its spans would all be there twice. disable() that first')
  }
  instrumented.add(client)
  const spans = new Spans(tracerProvider.getTracer(NAME, VERSION), inspectAfter, propagate)
  const meters = new Meters(meterProvider.getMeter(NAME, VERSION), LockClient.identityOf(client))
  const endings = [subscribe(client, spans.listeners), subscribe(client, meters.listeners)]
  let ended = false
  return {
    disable() {
      if (ended) return
      ended = true
      for (const end of endings) end()
      spans.end()
      meters.end()
      instrumented.delete(client)
    },
  }
}
