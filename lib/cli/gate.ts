// Where the command waits until its guard knows of it: a shell that becomes the command when it is told to. If we are gone
// by then (SIGKILL, out of memory) it reads the end of the file, and the command never runs.

import { existsSync } from 'node:fs'
import type { Socket } from 'node:net'

export const SHELL = '/bin/sh'

/** Variables that a shell makes if there are none. */
const MADE = ['PWD', 'OLDPWD', 'SHLVL']

// $@: the command. It shall find nothing of us but what is meant for it.
const script = (unset: readonly string[]) => `
read -r LEASEHOLD_GATE <&3 || exit 125
exec 3<&-
unset LEASEHOLD_GATE ${unset.join(' ')}
exec "$@"
`

/** Those that a shell reads or changes itself, whatever they were meant for. */
const SHELLS = /^(IFS|OPTIND|OPTARG|OPTERR|PPID|LINENO|PS[0-9]|ENV|SHELLOPTS|BASH.*|POSIXLY_CORRECT|DYLD_.*)$/

/**
 * Returns `env` without the variables that a shell uses itself. A bad OPTIND, for example, ends it.
 */
export function forShell(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !SHELLS.test(name)))
}

/**
 * Returns whether the command can be started behind a gate and then gets the same environment as
 * without one.
 */
export function isGated(file: string, env: NodeJS.ProcessEnv): boolean {
  if (process.platform === 'win32' || !existsSync(SHELL)) return false
  // A shell may drop variables of other names, such as a.b; and of such a file it would make an option.
  if (file.startsWith('-') || (env.PWD !== undefined && env.PWD !== process.cwd())) return false
  return Object.keys(env).every((name) => /^[A-Za-z_]\w*$/.test(name) && !SHELLS.test(name))
}

/** What {@link SHELL} is called with, and with the gate as its file descriptor 3. */
export function gateOf(command: readonly string[], env: NodeJS.ProcessEnv): string[] {
  const unset = MADE.filter((name) => !(name in env))
  return ['-c', script(unset), 'leasehold-gate', ...command]
}

/** Lets the command run. */
export function openGate(gate: Socket): void {
  // It may have been ended by a signal.
  gate.on('error', () => {})
  gate.end('go\n', () => gate.destroy())
}
