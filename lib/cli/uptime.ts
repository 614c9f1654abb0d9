import { readFileSync } from 'node:fs'
import { statusOf } from './process-table'

/**
 * Returns the time since the boot of the machine in ms, to about 10 ms. All processes of a machine
 * read the same clock. Returns `undefined` without /proc.
 */
export function uptime(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1_000)
  } catch {
    // With the mount option `subset=pid`, /proc has only the processes. This clock stands still
    // while the machine is suspended.
    return statusOf(process.pid) && Math.round(Number(process.hrtime.bigint() / 1_000_000n))
  }
}
