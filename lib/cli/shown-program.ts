// Shows the program of a command line that could not be run, for an error. A password may be in its
// place.

import { keyWithoutLogins } from '../util/without-logins'

/** Matches the name of a variable that a shell would set. Its value is often a password. */
const VARIABLE = /^[A-Za-z_]\w*=/

/** Returns whether `file` sets a variable, as in a shell. */
export const isVariable = (file: string): boolean => VARIABLE.test(file)

/** Returns the program in quotes, without the login of a URL and the value of a variable. */
export function shownProgram(file: string): string {
  const [variable] = VARIABLE.exec(file) ?? []
  return JSON.stringify(variable === undefined ? keyWithoutLogins(file) : `${variable}…`)
}
