// Shows the program of a command line that could not be run, for an error. A password may be in its
// place.

import { keyWithoutSecrets } from '../util/without-logins'

/** Matches the name of a variable that a shell would set. Its value is often a password. */
const VARIABLE = /^\s*[A-Za-z_]\w*=/

/** Returns whether `file` sets a variable, as in a shell. */
export const isVariable = (file: string): boolean => VARIABLE.test(file)

/**
 * Returns the program in quotes, without the login and the secrets of a URL, and up to the first
 * blank or `=`. Behind that, a whole command line, a variable or an option may have a password.
 */
export function shownProgram(file: string): string {
  const whole = keyWithoutSecrets(file.trim())
  const end = whole.search(/[\s=]/)
  if (end === -1) return JSON.stringify(whole)
  return JSON.stringify(`${whole.slice(0, end)}${whole[end] === '=' ? '=' : ''}…`)
}
