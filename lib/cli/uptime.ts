import { readFileSync } from 'node:fs'

/**
 * Returns the time since the boot of the machine in hundredths of a second, as the guard's shell
 * reads it; `undefined` without /proc.
 */
export function uptime(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 100)
  } catch {
    return undefined
  }
}
