// The gate: a shell at which the command waits until its guard watches over it. The shell becomes
// the command when it gets a line. If leasehold is gone by then (SIGKILL, out of memory), the shell
// reads the end of the file, and the command never runs.

import { existsSync } from 'node:fs'
import type { Socket } from 'node:net'

export const SHELL = '/bin/sh'

/** Variables that a shell sets if they are not set. */
const MADE = ['PWD', 'OLDPWD', 'SHLVL']

// $@ is the command. It must not inherit the pipe or variables of the gate.
const script = (unset: readonly string[]) => `
read -r LEASEHOLD_GATE <&3 || exit 125
exec 3<&-
unset LEASEHOLD_GATE ${unset.join(' ')}
exec "$@"
`

/** Variables that a shell reads or changes for its own purposes. */
const SHELLS = /^(IFS|OPTIND|OPTARG|OPTERR|PPID|LINENO|PS[0-9]|ENV|SHELLOPTS|BASH.*|POSIXLY_CORRECT|DYLD_.*)$/

/**
 * Returns whether the command can be started behind a gate and then gets the same environment as
 * without one.
 */
export function isGated(file: string, env: NodeJS.ProcessEnv): boolean {
  if (process.platform === 'win32' || !existsSync(SHELL)) return false
  // A shell may drop variables with other names, such as a.b. It would take a file name with a
  // minus for an option.
  if (file.startsWith('-') || (env.PWD !== undefined && !isWorkingFolder(env.PWD))) return false
  return Object.keys(env).every((name) => /^[A-Za-z_]\w*$/.test(name) && !SHELLS.test(name))
}

function isWorkingFolder(path: string): boolean {
  try {
    return path === process.cwd()
  } catch {
    // The working directory was deleted.
    return false
  }
}

/** Returns the arguments of {@link SHELL}. Its file descriptor 3 has to be the pipe of the gate. */
export function gateOf(command: readonly string[], env: NodeJS.ProcessEnv): string[] {
  const unset = MADE.filter((name) => !(name in env))
  return ['-c', script(unset), 'leasehold-gate', ...command]
}

/** Lets the command run. */
export function openGate(gate: Socket): void {
  // A signal may have ended the shell.
  gate.on('error', () => {})
  gate.end('go\n', () => gate.destroy())
}
