// When the ticks of a cron pattern are. What a pattern means is up to croner; that each process finds the same ticks,
// whenever it looks, is up to how it is asked here.

import type { Cron as Croner } from 'croner'
import { badType, badValue, checkText } from './arguments'
import { quote } from './errors'

/** Longer than any pattern that makes sense. */
const LONGEST = 1_000
/** No two ticks are closer. */
const SECOND = 1_000

export class Cron {
  readonly #croner: Croner

  /** Throws if `pattern` is none, never comes true, or there is no such `timeZone`. */
  constructor(pattern: string, timeZone: string) {
    if (typeof pattern !== 'string') throw badType('cron', 'a cron pattern, such as "0 3 * * *"', pattern)
    checkText('cron', pattern, 1, LONGEST)
    checkTimeZone(timeZone)
    this.#croner = parse(pattern, timeZone)
    if (this.next(Date.now()) === undefined) throw badValue('The "cron" argument is a pattern that never comes true')
  }

  /** The first tick after that instant, in ms since 1970; `undefined` if there is none. */
  next(after: number): number | undefined {
    return this.#croner.nextRun(new Date(after))?.getTime()
  }

  /** The last tick after `from` that is not after `to`. */
  last(from: number, to: number): number | undefined {
    let found = this.next(from)
    if (found === undefined || found > to) return undefined
    // Not one after the other: there may be a tick each second, and days between the two.
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
      `The "timeZone" option must be the name of a time zone, such as "Europe/Berlin" or "UTC". Received ${quote(given)}`,
    )
  }
}

function parse(pattern: string, timeZone: string): Croner {
  // A date is a pattern to croner, too, but no cron pattern, and what is past would depend on when one asks.
  const fields = pattern.trim().split(/\s+/).length
  if (fields < 5 && !pattern.trim().startsWith('@')) throw noPattern('it has too few fields')
  // Only who has a schedule pays for it.
  const croner: typeof import('croner') = require('croner')
  try {
    // Vixie cron's rule for the hours that a time zone skips or repeats: see docs/cron.md.
    return new croner.Cron(pattern, { timezone: timeZone, fixedTimeRule: 'no-wildcard', paused: true })
  } catch (error) {
    throw noPattern((error as Error).message.replace(/^CronPattern: /, '').slice(0, 200), error)
  }
}

function noPattern(why: string, cause?: unknown): TypeError {
  return badValue(`The "cron" argument must be a cron pattern, such as "0 3 * * *" or "@daily": ${why}`, cause)
}
