import { readFileSync } from 'node:fs'

/**
 * Returns the time since the boot of the machine in ms, to about 10 ms. All processes of a machine
 * read the same clock. Returns `undefined` without /proc.
 */
export function uptime(): number | undefined {
  try {
    return Math.round(Number.parseFloat(readFileSync('/proc/uptime', 'latin1')) * 1_000)
  } catch (error) {
    // leasehold and its guard have to read the same clock: no other error may change it.
    const isHidden = (error as NodeJS.ErrnoException).code === 'ENOENT' && process.platform === 'linux'
    // With the mount option `subset=pid`, /proc has only the processes. The clock of `hrtime`
    // stands still while the machine is suspended.
    return isHidden ? Math.round(Number(process.hrtime.bigint() / 1_000_000n)) : undefined
  }
}
