// Shows the program of a command line that could not be run, for an error. A password may be in its
// place.

import { keyWithoutSecrets } from '../util/without-logins'

/** Matches the name of a variable that a shell would set. Its value is often a password. */
const VARIABLE = /^\s*[A-Za-z_]\w*=/

/** Returns whether `file` sets a variable, as in a shell. */
export const isVariable = (file: string): boolean => VARIABLE.test(file)

/**
 * Returns the program in quotes, without the login of a URL, and up to the first blank or `=`. A
 * whole command line in one word, or the value of a variable or an option, may be a password.
 */
export function shownProgram(file: string): string {
  const whole = keyWithoutSecrets(file.trim())
  const end = whole.search(/[\s=]/)
  if (end === -1) return JSON.stringify(whole)
  return JSON.stringify(`${whole.slice(0, end)}${whole[end] === '=' ? '=' : ''}…`)
}
