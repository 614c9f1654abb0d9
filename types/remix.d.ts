// leasehold/remix: a lock for each request, in Remix, React Router, and handlers that take a
// Request.

import type { LockClient } from './client'
import type { InvalidKeys, LeaseOf, Refusal, RequestKeys, RequestLockOptions } from './http'

export type { InvalidKeys, LeaseOf, Refusal, RequestKeys, RequestLockOptions } from './http'

/**
 * The first argument of a handler: a request, or an object that has one, such as the `{ request,
 * params, context }` of Remix.
 */
export type WithRequest = Request | { readonly request: Request }

/** The options of {@link withRequestLock}. */
export interface WithRequestLockOptions<Args extends unknown[], K extends RequestKeys, R = Response>
  extends RequestLockOptions {
  /**
   * Returns which lock a request needs. Gets the arguments of the handler. If it throws, the
   * wrapped handler rejects with the same error. If the key is missing, not a string, empty, or
   * longer than 1024 bytes, the answer is 400; see `optional` and `maxKeys`.
   */
  key: (...args: Args) => K | PromiseLike<K>
  /**
   * Says until when the lock is held. `handler`: until the handler's promise has settled. `body`:
   * if the handler returns a `Response` with a body, until the body was read, was cancelled, or
   * failed, or the request's signal aborts. Use `body` if the body is made under the lock while it
   * is read. It is not the default, because an unread body holds the lock for ever, and a slow
   * reader holds it for long. Set `maxHold` with it. Default `handler`.
   *
   * With `body`, the body fails if the lease is lost. The `cancel()` of the body's source must
   * settle only when its work has stopped. If one of several keys is lost, or the client's drain
   * ends, `withRequestLock` waits for a `pull()` that still runs, for one `ttl` at most, before it
   * cancels the source. An abort of the request after that does not shorten the wait. In all other
   * cases, it cancels the source at once. An idle source may begin one more chunk during the wait,
   * so check `lease.signal` first. A copy of the body that is not read, made by `clone()` or
   * `tee()`, keeps its source from being cancelled: then only `maxHold` releases the lock, even if
   * the request aborts.
   *
   * An answer to `HEAD` has no body: when the handler's promise has settled, the `Response` is
   * returned without a body, the body is cancelled, and the lock is held until the `cancel()` of
   * its source has settled. If the body is a stream of Node, as in a `Response` of another library,
   * the wrapped handler destroys it, and rejects with a `TypeError` of code `ERR_INVALID_ARG_VALUE`
   * unless the request is a `HEAD`.
   */
  until?: 'handler' | 'body' | undefined
  /**
   * Answers a request whose lock is held by another client, or throws. Default: a `Response` of
   * status 423 with `Retry-After` and a problem+json.
   */
  onBusy?: ((refusal: Refusal, ...args: Args) => R | PromiseLike<R>) | undefined
  /**
   * Answers a request while the store is out of reach, or throws. Default: a `Response` of status
   * 503 with `Retry-After` and a problem+json, and if the store is the reason, for the first such
   * request with this client a process warning with the code `LEASEHOLD_STORE_UNAVAILABLE`.
   */
  onUnavailable?: ((refusal: Refusal, ...args: Args) => R | PromiseLike<R>) | undefined
  /**
   * Answers a request without a valid key, or throws. Default: a `Response` with status 400 and a
   * problem+json, and for the first key of a wrong type a process warning with the code
   * `LEASEHOLD_INVALID_KEY`.
   */
  onInvalid?: ((invalid: InvalidKeys, ...args: Args) => R | PromiseLike<R>) | undefined
}

/**
 * Wraps a handler so that each request is served under a lock: an action, a loader, or any function
 * whose first argument is a `Request`. The handler gets the lease, and then the arguments of the
 * wrapper.
 *
 * If the lock can't be acquired, the answer is 423 or 503 with `Retry-After`. If the request has no
 * valid key, the answer is 400. If the request's signal aborts while the request waits, the wait
 * ends, and the answer, which no client receives, is an empty 499. If it aborts while the handler
 * runs, the lock is held until the handler's promise has settled.
 *
 * @returns a function with the parameters of the handler after the lease. It rejects with the error
 * of the handler, or with a `LockLostError` if the lease was lost while the handler ran, although
 * the handler succeeded.
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * export const action = withRequestLock(
 *   locks,
 *   { key: ({ params }: ActionFunctionArgs) => `order:${params.id}`, wait: 2_000 },
 *   async (lease, { params }) => json(await charge(params.id, { fence: lease.fence })),
 * )
 */
export function withRequestLock<Args extends [WithRequest, ...unknown[]], K extends RequestKeys, T, R = Response>(
  locks: LockClient,
  options: WithRequestLockOptions<Args, K, R>,
  handler: (lease: LeaseOf<K>, ...args: Args) => T | PromiseLike<T>,
): (...args: Args) => Promise<T | R | Response>
