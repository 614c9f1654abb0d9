// The attributes of spans and metrics. General names are those of OpenTelemetry's semantic
// conventions (database, server, error); the others begin with `leasehold.`.

import type { Attributes } from '@opentelemetry/api'
import type * as api from '../../../index'

/** The database systems by the kinds of stores; memory is none. */
const systems: Record<Exclude<api.StoreIdentity['kind'], 'memory'>, string> = {
  sqlite: 'sqlite',
  redis: 'redis',
  'redis-sentinel': 'redis',
  'redis-cluster': 'redis',
  quorum: 'redis',
}

const known = new WeakMap<api.StoreIdentity, Attributes>()

/** Returns the attributes of a store. For one client, they are always the same object. */
export function storeAttributes(store: api.StoreIdentity): Attributes {
  let attributes = known.get(store)
  if (attributes === undefined) {
    attributes = describeStore(store)
    known.set(store, attributes)
  }
  return attributes
}

/** Adds an address only for one server: with several, the one that answered is not known. */
function describeStore({ kind, url }: api.StoreIdentity): Attributes {
  const attributes: Attributes = { 'leasehold.store.kind': kind }
  if (kind !== 'memory') attributes['db.system.name'] = systems[kind]
  if (kind !== 'redis') return attributes
  const [, host = '', port, database] = /^rediss?:\/\/(?:[^@]*@)?(\[[^\]]*\]|[^:/]*):(\d+)(?:\/(\d+))?$/.exec(url) ?? []
  if (port === undefined) {
    const [, path] = /^redis\+unix:\/\/(?:[^@/]*@)?(\/[^?]*)/.exec(url) ?? []
    if (path !== undefined) attributes['server.address'] = path
    return attributes
  }
  attributes['server.address'] = host.replace(/^\[|\]$/g, '')
  attributes['server.port'] = Number(port)
  attributes['db.namespace'] = database ?? '0'
  return attributes
}

/**
 * Returns the attributes of a failure; none for a success. The reason alone is not enough: two
 * errors have `timeout`.
 */
export function failureAttributes({ error, reason }: Pick<api.Ending<string>, 'error' | 'reason'>): Attributes {
  if (error === undefined) return {}
  const { code, name } = Object(error) as { code?: unknown; name?: unknown }
  const attributes: Attributes = { 'error.type': String(code ?? name ?? '_OTHER') }
  if (reason !== undefined) attributes['leasehold.reason'] = reason
  return attributes
}

export function acquireAttributes(message: api.AcquireMessage): Attributes {
  const { key, keys, method, mode, name, ttl, wait, store } = message
  return {
    ...storeAttributes(store),
    ...(keys.length === 1 ? { 'leasehold.key': key } : { 'leasehold.keys': [...keys] }),
    'leasehold.method': method,
    'leasehold.mode': mode,
    'leasehold.client.name': name,
    'leasehold.ttl': ttl / 1000,
    // Attributes have no infinite numbers.
    ...(Number.isFinite(wait) ? { 'leasehold.wait': wait / 1000 } : {}),
  }
}

export function leaseAttributes({ key, mode, name, fence, store }: api.LeaseMessage): Attributes {
  return {
    ...storeAttributes(store),
    'leasehold.key': key,
    'leasehold.mode': mode,
    'leasehold.client.name': name,
    'leasehold.fence': fence,
  }
}
