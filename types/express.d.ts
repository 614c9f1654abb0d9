// leasehold/express: a lock for each request, in Express 4 and 5, Connect, and node:http by itself.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { LockClient } from './client'
import type { InvalidKeys, Refusal, RequestKeys, RequestLockOptions } from './http'
import type { Lease, MultiLease } from './lease'

export type { InvalidKeys, Refusal, RequestKeys, RequestLockOptions } from './http'

declare global {
  namespace Express {
    interface Request {
      /**
       * The lease under which the request is served, if `lockRequest()` was given one key for it.
       */
      lease?: Lease
      /** The leases, if `lockRequest()` was given several keys for it. */
      leases?: MultiLease
    }
  }
}

/** The properties that handlers find on a request of node:http or Express, if it needed a lock. */
export interface LockedRequest {
  /** The lease under which the request is served, if it has one key. */
  lease?: Lease
  /** The leases, if the request has several keys. */
  leases?: MultiLease
}

/**
 * The properties of a request whose key function returns `K`, as a handler of {@link lockRequest}
 * gets it.
 */
export type Locked<K> = [K] extends [string]
  ? { lease: Lease }
  : [K] extends [readonly string[]]
    ? { leases: MultiLease }
    : LockedRequest

/** Calls the next handler, or the error handler. */
export type Next = (error?: unknown) => void

/**
 * The response that belongs to a request: the type of its `res` if it has one, as in Express, and
 * that of node:http otherwise.
 */
export type ResponseOf<Request> = 'res' extends keyof Request
  ? Extract<NonNullable<Request['res']>, object>
  : ServerResponse

/** The options of {@link lockRequest}. */
export interface LockRequestOptions<
  Request = IncomingMessage,
  Response = ResponseOf<Request>,
  K extends RequestKeys = RequestKeys,
> extends RequestLockOptions {
  /**
   * Returns which lock a request needs. If it throws, the error goes to the error handler. If the
   * key is missing, not a string, empty, or longer than 1024 bytes, the answer is 400; see
   * `optional` and `maxKeys`.
   */
  key: (request: Request) => K | PromiseLike<K>
  /**
   * Says until when the lock is held. `response`: until the response is finished or its connection
   * has closed. `end`: until then, and until a handler has called `response.end()` or
   * `response.destroy()`, so that work which outlives its client keeps the lock. Default
   * `response`.
   *
   * With `end`, a handler that calls neither holds the lock until `maxHold` or the end of the
   * process. If one of several keys is lost, the others are held until the handler ends its
   * response. Put `lockRequest` after middleware that wraps the response, such as `compression`.
   */
  until?: 'response' | 'end' | undefined
  /**
   * Answers 423 itself. The status and `Retry-After` are set already. If the function throws or
   * rejects before it has sent anything, they are taken back, and the error goes to `next`.
   * Default: a small `application/problem+json`.
   */
  onBusy?: ((refusal: Refusal, request: Request, response: Response, next: Next) => unknown) | undefined
  /**
   * Answers 503 itself, like `onBusy`. Default: a small `application/problem+json`, and if the
   * store is the reason, for the first such request with this client a process warning with the
   * code `LEASEHOLD_STORE_UNAVAILABLE`.
   */
  onUnavailable?: ((refusal: Refusal, request: Request, response: Response, next: Next) => unknown) | undefined
  /**
   * Answers 400 itself, like `onBusy`, but without `Retry-After`. Default: a small
   * `application/problem+json`, and for the first key of a wrong type a process warning with the
   * code `LEASEHOLD_INVALID_KEY`.
   */
  onInvalid?: ((invalid: InvalidKeys, request: Request, response: Response, next: Next) => unknown) | undefined
}

/**
 * Removes from the type of a request what depends on the route of Express. A middleware that needs
 * no more than this does not change the types of the other handlers of the route.
 */
export type OfAnyRoute<Request> = Request extends IncomingMessage
  ? IncomingMessage & Omit<Request, keyof IncomingMessage | 'params' | 'query' | 'body' | 'res'>
  : Request

/**
 * Removes from the type of a response what depends on the route of Express: its body and `locals`.
 */
export type ToAnyRoute<Response, Request> = Response extends ServerResponse
  ? // In a route of Express, TypeScript infers the request of the key function from `req`.
    ServerResponse & { req: OfAnyRoute<Request> }
  : Response

/**
 * A handler that Express, Connect and node:http can call. Without `next`, errors are rejections.
 * Call `response.end()` or `response.destroy()` then: the lock is held until the response is over.
 */
export type LockedHandler<Request, Response> = (
  request: OfAnyRoute<Request>,
  response: ToAnyRoute<Response, Request>,
  next?: Next,
) => Promise<void>

/**
 * Creates a middleware that acquires a lock for each request and sets the lease as `request.lease`
 * (for several keys: `request.leases`). It releases the lock when the response is finished or the
 * connection is closed.
 *
 * If the lock can't be acquired, the answer is 423 or 503 with `Retry-After`. If the request has no
 * valid key, the answer is 400. If the client goes away while its request waits, the wait ends, and
 * there is no answer. If the client goes away while the handlers work, the lock is released
 * although they may still be at work: `request.lease.isHeld` shows that, and storage that checks
 * the fence refuses their late writes. To hold the lock until the work is over, pass the handler
 * here, or set `until: 'end'`.
 *
 * @param handler Runs under the lock, which is then held until the handler's promise has settled
 * *and* the response is finished or the connection is closed. If the handler fails, the error goes
 * to `next`, and the lock is held while the error handler answers. A handler that returns a
 * `Response` fails (`ERR_INVALID_ARG_VALUE`), because Express would not send it.
 * @throws {TypeError} `ERR_INVALID_ARG_TYPE`, `ERR_INVALID_ARG_VALUE`
 * @throws {RangeError} `ERR_OUT_OF_RANGE`
 * @example
 * const oneAtATime = lockRequest(locks, { key: (request: Request) => `order:${request.params.id}`, wait: 2_000 })
 * app.post('/orders/:id/pay', oneAtATime, async (request, response) => {
 *   await charge(request.params.id, { fence: request.lease?.fence })
 *   response.sendStatus(204)
 * })
 */
export function lockRequest<
  Request extends object = IncomingMessage,
  Response extends object = ResponseOf<Request>,
  K extends RequestKeys = RequestKeys,
>(
  locks: LockClient,
  options: LockRequestOptions<Request, Response, K>,
  handler?: (request: Request & Locked<K>, response: Response, next: Next) => unknown,
): LockedHandler<Request, Response>
