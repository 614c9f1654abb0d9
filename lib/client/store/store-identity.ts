// Describes the store of a client for messages, without passwords.

import type * as api from '../../../index'

/**
 * Returns the identity of a store. A scheme that this function does not name counts as Redis:
 * native code has refused the unknown ones. So a new kind of store needs a line here.
 *
 * @param given the URLs that the client was given
 * @param servers the names that native code gives the servers, without passwords; none for some
 * kinds of stores
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

/** Returns the hosts after the last login: any text before an `@` may be a password. */
function withoutLogin(scheme: string, url: string): string {
  const [authority = ''] = url.slice(url.indexOf('://') + 3).split(/[/?#]/, 1)
  return `${scheme}://${authority.slice(authority.lastIndexOf('@') + 1)}`
}
