// leasehold/remix: see types/remix.d.ts.

import type * as api from '../../index'
import type { InvalidKeys, Refusal, RequestKeys } from '../../types/http'
import type { WithRequest, WithRequestLockOptions } from '../../types/remix'
import { badType, badValue, checkFunction, inCall } from '../util/arguments'
import { dropBody, followBody, isResponse } from './http/body'
import { HoldTime } from './http/hold-time'
import { KeyReader } from './http/invalid-keys'
import { isLoss } from './http/loss'
import { destroyed, isNodeStream } from './http/node-body'
import { OutageWarning } from './http/outage-warning'
import { headersOf, ownAnswer, PROBLEM, problemOf } from './http/refusal'
import { checkLocks, parseRequestLock } from './http/request-lock'
import { underLock } from './http/under-lock'

type Args = [WithRequest, ...unknown[]]
type AnyLease = api.Lease | api.MultiLease | undefined

/** The status for a client that has gone. No client receives it; proxies log this number. */
const CLIENT_GONE = 499

const NODE_STREAM =
  'With until: "body", the body of a Response must be a ReadableStream. This body is a stream of Node, which ' +
  'withRequestLock() cannot follow. Return a Response of Node whose body is a ReadableStream, or set until: "handler"'

export function withRequestLock(
  locks: api.LockClient,
  given: WithRequestLockOptions<Args, RequestKeys, unknown>,
  handler: (lease: AnyLease, ...args: Args) => unknown,
): (...args: Args) => Promise<unknown> {
  const { options, acquireOptions, rules } = inCall('withRequestLock', () => {
    checkLocks(locks, 'withRequestLock')
    const parsed = parseRequestLock(given, ['handler', 'body'])
    checkFunction('handler', handler)
    return parsed
  })
  const { key, until } = options
  const reader = new KeyReader(rules, 'withRequestLock', options.onInvalid !== undefined)
  const outages = new OutageWarning(locks, 'withRequestLock', options.onUnavailable !== undefined)
  const hold = new HoldTime()

  function refuse(refusal: Refusal | InvalidKeys, args: Args): unknown {
    if (refusal.status !== 400) outages.warn(refusal)
    const own = ownAnswer(options, refusal)
    return own === undefined ? problem(refusal) : own(...args)
  }

  return async function requestLock(...args) {
    const request = requestOf(args[0])
    const { signal, method } = request
    const said = await key(...args)
    let keys: string | readonly string[] | undefined
    try {
      keys = reader.read(said, request)
    } catch (error) {
      return refuse({ status: 400, error: error as TypeError | RangeError }, args)
    }
    if (keys === undefined) return handler(undefined, ...args)
    let deliver: (response: Response) => void = () => {}
    const delivered = new Promise<Response>((resolve) => {
      deliver = resolve
    })
    const serve = async () => {
      const outcome = await underLock({ locks, keys, options: acquireOptions, hold, end: request }, async (lease) => {
        const result = await handler(lease, ...args)
        if (until === 'handler' || !isResponse(result) || result.body === null) return result
        const isHead = method === 'HEAD'
        if (!isHead && isNodeStream(result.body)) {
          await destroyed(result.body)
          throw badValue(NODE_STREAM)
        }
        // A server throws away the body of an answer to HEAD and does not report that, so the lock
        // would be held for ever.
        const { response, over } = isHead ? dropBody(result) : followBody(result, lease, signal)
        // A body reports a loss to its reader. Without one, the caller gets a LockLostError.
        if (!isHead || !isLoss(lease.signal)) deliver(response)
        await over
        return response
      })
      if (outcome === 'gone') return new Response(null, { status: CLIENT_GONE })
      if ('value' in outcome) return outcome.value
      return refuse(outcome.refusal, args)
    }
    // Hand out a response whose body has yet to be read while the lock is held.
    return Promise.race([delivered, serve()])
  }
}

function problem(refusal: Refusal | InvalidKeys): Response {
  const headers = { ...headersOf(refusal), 'content-type': PROBLEM }
  return new Response(problemOf(refusal), { status: refusal.status, headers })
}

function requestOf(given: unknown): Request {
  const { request = given } = Object(given) as { request?: unknown }
  const { signal } = Object(request) as Partial<Request>
  if (signal === undefined) throw badType('request', 'a Request, or an object that has one as "request"', given)
  return request as Request
}
