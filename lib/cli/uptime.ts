import { readFileSync } from 'node:fs'

/**
 * Returns the time since the boot of the machine in ms, to about 10 ms. All processes of a machine
 * read the same clock. Returns `undefined` without /proc.
 */
export function uptime(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1_000)
  } catch {
    return undefined
  }
}
