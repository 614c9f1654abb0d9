// Parses durations as people write them.

import { MAX_MS } from '../util/arguments'
import { UsageError } from './exits'

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }

/** Parses `500ms`, `10s`, `1.5m`, `2h`, or `0`. Returns ms, from `least` to `most`. */
export function parseDuration(option: string, text: string, least = 0, most = MAX_MS): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text.trim()) ?? []
  const factor = unit === undefined ? undefined : UNITS[unit]
  if (digits === undefined || (factor === undefined && Number(digits) !== 0)) {
    const hint = digits === undefined ? '' : `; did you mean ${digits}s?`
    throw new UsageError(`--${option} takes a time with its unit, as in 500ms, 10s, 5m or 2h${hint}`)
  }
  const ms = Math.round(Number(digits) * (factor ?? 0))
  if (ms >= least && ms <= most) return ms
  throw new UsageError(`--${option} takes ${written(least)} to ${written(most)}`)
}

/** Writes a limit as a user would give it. The longest one is no whole number of any unit. */
function written(ms: number): string {
  if (ms === MAX_MS) return '24.8 days'
  const unit = (['h', 'm', 's'] as const).find((name) => ms > 0 && ms % (UNITS[name] as number) === 0)
  return unit === undefined ? `${ms}${ms === 0 ? '' : 'ms'}` : `${ms / (UNITS[unit] as number)}${unit}`
}
