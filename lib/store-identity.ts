// Which store a client has, for those who are told of it: never with a password.

import type * as api from '../index'

/**
 * @param given the URLs as the client was given them
 * @param servers what native code calls the servers behind them, without passwords; none for some kinds of stores
 */
export function identify(given: readonly string[], servers: readonly string[]): api.StoreIdentity {
  const [first = ''] = given
  if (given.length > 1) return { kind: 'quorum', url: servers.join(',') }
  const scheme = first.slice(0, first.indexOf(':')).toLowerCase()
  if (scheme === 'memory' || scheme === 'sqlite') return { kind: scheme, url: first }
  if (scheme.endsWith('-cluster')) return { kind: 'redis-cluster', url: withoutLogin(scheme, first) }
  const kind = scheme.endsWith('-sentinel') ? 'redis-sentinel' : 'redis'
  return { kind, url: servers[0] ?? withoutLogin(scheme, first) }
}

/** Its hosts, but for those before the last that has a login: what stands before an `@` may be a password. */
function withoutLogin(scheme: string, url: string): string {
  const [authority = ''] = url.slice(url.indexOf('://') + 3).split(/[/?#]/, 1)
  return `${scheme}://${authority.slice(authority.lastIndexOf('@') + 1)}`
}
