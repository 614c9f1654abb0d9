// The options of a schedule. See types/once.d.ts for their meaning.

import type * as api from '../../../index'
import { checkBoolean, checkMs, checkTtl, MAX_MS, outOfRange, readOptions } from '../../util/arguments'
import type { OnceContext } from './acquire-once'
import { checkKeep, KEEP } from './once'

const SCHEDULE_OPTIONS = [
  'timeZone',
  'overlap',
  'catchUp',
  'keep',
  'ttl',
  'unref',
] as const satisfies (keyof api.ScheduleOptions)[]

export interface ScheduleSettings {
  readonly overlap: boolean
  readonly catchUp: number
  /**
   * How long the store remembers a tick, in ms: 1.5 times the option `keep`, up to `MAX_MS`. A
   * process whose clock is late by less than `keep` asks for a tick for at most `catchUp`, which is
   * at most half of `keep`. If this is smaller, the store may forget the tick meanwhile, and the
   * tick runs again.
   */
  readonly keptFor: number
  readonly ttl: number
  readonly unref: boolean
}

export function parseSchedule(given: unknown, { acquirer }: OnceContext): ScheduleSettings & { timeZone: string } {
  const options = readOptions<api.ScheduleOptions>(given, SCHEDULE_OPTIONS)
  const { timeZone = 'UTC', overlap = false, catchUp = 10_000, ttl = acquirer.defaults.ttl, unref = false } = options
  checkBoolean('overlap', overlap)
  checkMs('catchUp', catchUp, 1_000, Math.floor(MAX_MS / 2))
  checkTtl(ttl)
  checkBoolean('unref', unref)
  const keep = checkKeep(options.keep, ttl, Math.max(KEEP, 2 * catchUp))
  // A process that asks for a forgotten tick would run it again.
  if (keep < 2 * catchUp) throw outOfRange('keep', `>= 2 * catchUp, which is ${2 * catchUp}`, keep)
  return { timeZone, overlap, catchUp, ttl, unref, keptFor: Math.min(keep + Math.ceil(keep / 2), MAX_MS) }
}
