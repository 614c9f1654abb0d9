/** Writes a duration for people, with about three digits. */
export function formatDuration(ms: number): string {
  if (ms < 1) return `${(ms * 1_000).toFixed(0)} µs`
  if (ms < 10) return `${ms.toFixed(2)} ms`
  if (ms < 1_000) return `${ms.toFixed(0)} ms`
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`
  const [unit, larger, smaller] = ms < 3_600_000 ? [1_000, 'm', 's'] : [60_000, 'h', 'm']
  const count = Math.round(ms / unit)
  return `${Math.floor(count / 60)} ${larger} ${count % 60} ${smaller}`
}
