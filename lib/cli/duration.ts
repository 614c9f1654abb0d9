// Spans of time as people write them.

import { UsageError } from './exits'

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }

/** `500ms`, `10s`, `1.5m`, `2h`, or `0`, in ms. */
export function parseDuration(option: string, text: string): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text.trim()) ?? []
  const factor = unit === undefined ? undefined : UNITS[unit]
  if (digits !== undefined && factor !== undefined) return Math.round(Number(digits) * factor)
  if (Number(digits) === 0) return 0
  const hint = digits === undefined ? '' : `; did you mean ${digits}s?`
  throw new UsageError(`--${option} takes a time with its unit, as in 500ms, 10s, 5m or 2h${hint}`)
}

/** The same for people to read: three digits are enough. */
export function formatDuration(ms: number): string {
  if (ms < 1) return `${(ms * 1_000).toFixed(0)} µs`
  if (ms < 10) return `${ms.toFixed(2)} ms`
  if (ms < 1_000) return `${ms.toFixed(0)} ms`
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} m ${Math.round((ms % 60_000) / 1_000)} s`
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} m`
}
