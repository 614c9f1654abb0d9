import { CliError, Exit } from './exits'
import { shownProgram } from './shown-program'

/**
 * Returns the error of a command without a guard. `what` says what became of the command, and `why`
 * what became of the guard.
 */
export function unguarded(file: string, what: string, why: string): CliError {
  const guard = 'its guard, which stops it if leasehold is killed,'
  return new CliError(Exit.System, `${shownProgram(file)} ${what}: ${guard} ${why}`)
}
