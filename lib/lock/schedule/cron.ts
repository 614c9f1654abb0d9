// Finds the ticks of a cron pattern. croner says what a pattern means. This file calls croner so
// that each process finds the same ticks, whenever it looks.

import type { Cron as Croner } from 'croner'
import { badType, badValue, checkText } from '../../util/arguments'
import { printable, quote } from '../../util/printable'
import { mayBeSecret, NOT_SHOWN, shownText } from '../../util/shown-text'

/** The longest pattern, in bytes. */
const LONGEST = 1_000
/** The shortest time between two ticks, in ms. */
const SECOND = 1_000

export class Cron {
  readonly #croner: Croner

  /**
   * Throws if `pattern` is no cron pattern or never comes true, or if `timeZone` is unknown.
   * `schedule` is the name of the schedule.
   */
  constructor(schedule: string, pattern: string, timeZone: string) {
    if (typeof pattern !== 'string') throw badType('cron', 'a cron pattern, such as "0 3 * * *"', pattern)
    checkText('cron', pattern, 1, LONGEST)
    checkTimeZone(timeZone)
    this.#croner = parse(schedule, pattern, timeZone)
    if (this.next(Date.now()) === undefined) throw noPattern(schedule, 'it never comes true')
  }

  /** Returns the first tick after `after`, both in ms since 1970; `undefined` if there is none. */
  next(after: number): number | undefined {
    return this.#croner.nextRun(new Date(after))?.getTime()
  }

  /** Returns the last tick after `from` that is not after `to`; `undefined` if there is none. */
  last(from: number, to: number): number | undefined {
    let found = this.next(from)
    if (found === undefined || found > to) return undefined
    // Search by halves: there may be a tick each second, and days between `from` and `to`.
    for (let high = to; high - found >= SECOND; ) {
      const middle = Math.floor((found + high) / 2)
      const next = this.next(middle)
      if (next !== undefined && next <= to) found = next
      else high = middle
    }
    return found
  }
}

function checkTimeZone(given: unknown): void {
  checkText('timeZone', given, 1, 255)
  try {
    new Intl.DateTimeFormat('en', { timeZone: given })
  } catch {
    throw badValue(
      `The "timeZone" option must be the name of a time zone, such as "Europe/Berlin" or "UTC". Received ${shownText(given)}`,
    )
  }
}

function parse(schedule: string, pattern: string, timeZone: string): Croner {
  // croner also takes dates. A date is no cron pattern, and whether it is past depends on the time
  // of the call.
  const fields = pattern.trim().split(/\s+/).length
  if (fields < 5 && !pattern.trim().startsWith('@')) throw noPattern(schedule, 'it has too few fields')
  // croner would repeat the pattern in its error. Only a nickname, such as @daily, has an @.
  if (mayBeSecret(pattern.trim().replace(/^@/, ''))) {
    throw noPattern(schedule, `it has a character that no pattern has, and is ${NOT_SHOWN}`)
  }
  // Load croner only for programs with schedules.
  const croner: typeof import('croner') = require('croner')
  try {
    // Vixie cron's rule for the hours that a time zone skips or repeats: see docs/cron.md.
    // No prototype: croner would read options that a program has put on Object.prototype.
    const options = { __proto__: null, timezone: timeZone, fixedTimeRule: 'no-wildcard', paused: true } as const
    return new croner.Cron(pattern, options)
  } catch (error) {
    if (pattern.trim().startsWith('@')) {
      throw noPattern(schedule, 'it is not a nickname such as @hourly or @daily', error)
    }
    throw noPattern(schedule, printable((error as Error).message.replace(/^CronPattern: /, ''), 200), error)
  }
}

function noPattern(schedule: string, why: string, cause?: unknown): TypeError {
  const expected = 'must be a cron pattern, such as "0 3 * * *" or "@daily"'
  return badValue(`The "cron" argument of the schedule ${quote(schedule)} ${expected}: ${why}`, cause)
}
