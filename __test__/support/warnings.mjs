// The process warnings of this library.

import { atEnd } from './endings.mjs'

/** Collects the warnings with this code until the test is over. Node prints none meanwhile. */
export function warningsOf(t, code) {
  const warnings = []
  const printers = process.listeners('warning')
  process.removeAllListeners('warning')
  process.on('warning', (warning) => {
    if (warning.code === code) warnings.push(warning)
  })
  atEnd(t, () => {
    process.removeAllListeners('warning')
    for (const printer of printers) process.on('warning', printer)
  })
  return warnings
}
