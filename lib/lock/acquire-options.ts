// The options of acquire(), tryAcquire() and adopt(). See types/options.d.ts for their meaning.

import type * as api from '../../index'
import { Flag, NO_MAX_HOLD, NO_WAIT } from '../native/protocol'
import {
  checkBoolean,
  checkMs,
  checkMsOrInfinity,
  checkSignal,
  checkTtl,
  MIN_TTL,
  outOfRange,
  readOptions,
} from '../util/arguments'
import { withFailFast } from './fail-fast'
import type { LockRequest } from './lock-request'
import { parseRetry, type RetryPolicy } from './retry-options'

const TRY_OPTIONS = ['ttl', 'signal', 'autoRenew', 'maxHold'] as const satisfies (keyof api.AcquireOptions)[]
const ACQUIRE_OPTIONS = [...TRY_OPTIONS, 'wait', 'retry', 'failFast'] as const

export function parseAcquire(given: unknown, defaults: LockRequest): LockRequest {
  const options = readOptions<api.AcquireOptions>(given, ACQUIRE_OPTIONS)
  const retry = options.retry === undefined ? undefined : parseRetry(options.retry)
  // A call with `retry` is limited by its retries.
  const { wait = retry === undefined ? defaults.wait : Number.POSITIVE_INFINITY } = options
  checkMsOrInfinity('wait', wait, 0)
  const { failFast } = options
  if (failFast === undefined) return parseLease(options, defaults, wait, retry)
  checkBoolean('failFast', failFast)
  return parseLease(options, { ...defaults, flags: withFailFast(defaults.flags, failFast) }, wait, retry)
}

/** Reads the options of tryAcquire() and of adopt(). */
export function parseTry(
  given: unknown,
  defaults: LockRequest,
  notHere?: Readonly<Record<string, string>>,
): LockRequest {
  return parseLease(readOptions<api.TryAcquireOptions>(given, TRY_OPTIONS, notHere), defaults, NO_WAIT)
}

function parseLease(
  given: api.TryAcquireOptions,
  defaults: LockRequest,
  wait: number,
  retry?: RetryPolicy,
): LockRequest {
  const { signal, maxHold, autoRenew = true } = given
  let { ttl } = given
  // If the caller sets a ttl, it does not come from a ticket.
  const flags = ttl === undefined ? defaults.flags : defaults.flags & ~Flag.TicketTtl
  if (ttl !== undefined) checkTtl(ttl)
  if (maxHold !== undefined) {
    checkMs('maxHold', maxHold, MIN_TTL)
    if (ttl !== undefined && maxHold < ttl) throw outOfRange('maxHold', `>= ttl, which is ${ttl}`, maxHold)
    ttl ??= Math.min(defaults.ttl, maxHold)
  }
  checkBoolean('autoRenew', autoRenew)
  if (signal !== undefined) checkSignal('signal', signal)
  return {
    ttl: ttl ?? defaults.ttl,
    wait,
    maxHold: maxHold ?? NO_MAX_HOLD,
    most: defaults.most,
    flags: autoRenew ? flags : flags | Flag.NoRenewal,
    trace: undefined,
    retry,
    signal,
    group: undefined,
    began: undefined,
  }
}
