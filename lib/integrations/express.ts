// leasehold/express: see types/express.d.ts.

import type { IncomingMessage, ServerResponse } from 'node:http'
import type * as api from '../../index'
import type { InvalidKeys, LockedRequest, LockRequestOptions, Next, Refusal } from '../../types/express'
import { isLockError } from '../diagnostics/errors'
import { badType, badValue, checkFunction, inCall } from '../util/arguments'
import { asError } from '../util/as-error'
import { handlerEnd } from './http/handler-end'
import { HoldTime } from './http/hold-time'
import { KeyReader } from './http/invalid-keys'
import { lossOf } from './http/loss'
import { OutageWarning } from './http/outage-warning'
import { headersOf, ownAnswer, PROBLEM, problemOf } from './http/refusal'
import { checkLocks, parseRequestLock } from './http/request-lock'
import { ResponseEnd } from './http/response-end'
import { underLock } from './http/under-lock'

type Request = IncomingMessage & LockedRequest
type Handler = (request: Request, response: ServerResponse, next: Next) => unknown

export function lockRequest(
  locks: api.LockClient,
  given: LockRequestOptions<Request, ServerResponse>,
  handler?: Handler,
): (request: Request, response: ServerResponse, next?: Next) => Promise<void> {
  const { options, acquireOptions, rules } = inCall('lockRequest', () => {
    checkLocks(locks, 'lockRequest')
    const parsed = parseRequestLock(given, ['response', 'end'])
    if (handler !== undefined) checkFunction('handler', handler)
    return parsed
  })
  const { key, until } = options
  const reader = new KeyReader(rules, 'lockRequest', options.onInvalid !== undefined)
  const outages = new OutageWarning(locks, 'lockRequest', options.onUnavailable !== undefined)
  const hold = new HoldTime()

  async function handle(request: Request, response: ServerResponse, next: Next): Promise<void> {
    const returned = await (handler ?? pass)(request, response, next)
    // Express would not send the Response: the request would hang, and hold its lock.
    if (handler !== undefined && returned instanceof Response) throw returnedResponse()
  }

  /**
   * Serves the request under its locks. Calls `fail` with what the handler throws, while the locks
   * are held, and throws all other errors.
   */
  async function serve(
    request: Request,
    response: ServerResponse,
    next: Next,
    end: ResponseEnd,
    fail: (error: unknown) => void,
  ): Promise<void> {
    // Wrap end() before later middleware does: the wrapper of that middleware may not call the
    // function that it wraps.
    const over = until === 'end' ? Promise.all([end.over, handlerEnd(response)]) : end.over
    const said = await key(request)
    if (end.signal.aborted) return
    let keys: string | readonly string[] | undefined
    try {
      keys = reader.read(said, request)
    } catch (error) {
      await refuse({ status: 400, error: error as TypeError | RangeError }, request, response, next)
      return
    }
    if (keys === undefined) {
      await handle(request, response, next)
      return
    }
    let hasServed = false
    try {
      const outcome = await underLock({ locks, keys, options: acquireOptions, hold, end }, async (lease) => {
        put(lease, request)
        let answered: Promise<unknown> = over
        try {
          await handle(request, response, next)
        } catch (error) {
          // No error handler calls end() then: after the headers, Express destroys the
          // connection, and if it is too late, `fail` does not pass the error on.
          if (response.headersSent || isTooLate(error, end)) answered = end.over
          fail(error)
        }
        hasServed = true
        await (until === 'end' ? Promise.race([answered, lossOf(lease)]) : answered)
      })
      if (outcome !== 'gone' && 'refusal' in outcome) await refuse(outcome.refusal, request, response, next)
    } catch (error) {
      // The handler has run, so it or the error handler answers the request. The lease's signal and
      // the client's 'lost' event have reported the loss.
      if (!(isLost(error) && hasServed)) throw error
    }
  }

  async function refuse(
    refusal: Refusal | InvalidKeys,
    request: Request,
    response: ServerResponse,
    next: Next,
  ): Promise<void> {
    if (refusal.status !== 400) outages.warn(refusal)
    const own = ownAnswer(options, refusal)
    await answer(refusal, own && ((goOn) => own(request, response, goOn)), response, next)
  }

  return async function requestLock(request, response, next) {
    checkResponse(response)
    const end = new ResponseEnd(request, response)
    await new Promise<void>((resolve, reject) => {
      // Call `next` at most once for each request: do not pass later failures to it.
      let hasPassed = false
      const once: Next = (error) => {
        hasPassed = true
        next?.(error)
      }
      const fail = (error: unknown): void => {
        if (isTooLate(error, end)) return
        // Reject at once: the caller answers the request, and the lock may be held until then.
        if (hasPassed || next === undefined) reject(error)
        else once(forExpress(error))
      }
      serve(request, response, once, end, fail).catch(fail).then(resolve, reject)
    })
  }
}

/**
 * Returns whether `error` is the loss of a lease, and the response is already over. The lease's
 * signal and the client's 'lost' event have reported the loss.
 */
function isTooLate(error: unknown, end: ResponseEnd): boolean {
  return isLost(error) && end.signal.aborted
}

/**
 * Throws if `given` is not a response of node:http. Other frameworks, such as Koa, call middleware
 * with other arguments.
 */
function checkResponse(given: unknown): void {
  const { on, setHeader } = Object(given) as Partial<ServerResponse>
  if (typeof on === 'function' && typeof setHeader === 'function') return
  throw badType('response', 'a response of node:http, as Express and Connect pass it to a middleware', given)
}

/** Answers a request that is not served: with `own` if given, else with a small problem+json. */
async function answer(
  refusal: Refusal | InvalidKeys,
  own: ((goOn: Next) => unknown) | undefined,
  response: ServerResponse,
  next: Next,
): Promise<void> {
  // Another handler has begun an answer already, and only an error can end it.
  if (response.headersSent) throw refusal.error
  const takeBack = announce(refusal, response)
  if (own === undefined) {
    response.setHeader('content-type', PROBLEM)
    response.end(problemOf(refusal))
    return
  }
  let hasPassed = false
  const goOn: Next = (error) => {
    hasPassed = true
    next(error)
  }
  try {
    await own(goOn)
  } catch (error) {
    // An error of `own` must not be answered 423. But the next handler may have set its own status.
    if (!hasPassed && !response.headersSent) takeBack()
    throw error
  }
}

/**
 * Returns a value that Express handles as an error. After a falsy value, and after its own words
 * `route` and `router`, Express would call the next handler, which would run without the lock.
 */
function forExpress(thrown: unknown): unknown {
  return !thrown || thrown === 'route' || thrown === 'router' ? asError(thrown) : thrown
}

function isLost(error: unknown): boolean {
  return isLockError(error) && error.code === 'ERR_LOCK_LOST'
}

function returnedResponse(): TypeError {
  return badValue(
    'The handler of lockRequest() returned a Response. Answer with the "response" argument, or use withRequestLock() of ' +
      'leasehold/remix for handlers that return a Response',
  )
}

/** The handler of a middleware: calls the next handler. */
const pass: Handler = (_request, _response, next) => next()

/** Sets the status and headers of a refusal. Returns a function that undoes this. */
function announce(refusal: Refusal | InvalidKeys, response: ServerResponse): () => void {
  const { statusCode } = response
  const headers = Object.entries(headersOf(refusal))
  const before = headers.map(([name]) => [name, response.getHeader(name)] as const)
  response.statusCode = refusal.status
  for (const [name, value] of headers) response.setHeader(name, value)
  return () => {
    response.statusCode = statusCode
    for (const [name, value] of before) {
      if (value === undefined) response.removeHeader(name)
      else response.setHeader(name, value)
    }
  }
}

function put(lease: api.Lease | api.MultiLease, request: Request): void {
  if ('leases' in lease) request.leases = lease
  else request.lease = lease
}
