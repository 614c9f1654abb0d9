// Whoever ends the command when leasehold itself is killed (SIGKILL, out of memory) and can't do it any more.
//
// Linux has PR_SET_PDEATHSIG for that, of which Node knows nothing. So a shell reads from a pipe of which only we have the
// other end: a line means that all is over, the end of the file that we are gone.

import { type ChildProcess, spawn } from 'node:child_process'

// $1: whom to end, a process or, with a minus, a group; $2: the seconds between SIGTERM and SIGKILL.
const SCRIPT = `
trap '' HUP INT QUIT TERM
if read -r _; then exit 0; fi
kill -s TERM -- "$1" 2>/dev/null || exit 0
left=$2
while [ "$left" -gt 0 ] && kill -s 0 -- "$1" 2>/dev/null; do sleep 1; left=$((left - 1)); done
kill -s KILL -- "$1" 2>/dev/null
`

export class Guard {
  readonly #shell: ChildProcess

  /** Watches over the process, or, if it is negative, the process group. There is none on Windows. */
  constructor(target: number, grace: number) {
    const seconds = Math.ceil(grace / 1_000)
    this.#shell = spawn('/bin/sh', ['-c', SCRIPT, 'leasehold-guard', String(target), String(seconds)], {
      stdio: ['pipe', 'ignore', 'ignore'],
      // Not in the group that it is to end, nor in the one that a terminal interrupts.
      detached: true,
      cwd: '/',
    })
    // Where there is no shell, there is no guard.
    this.#shell.on('error', () => {})
    this.#shell.stdin?.on('error', () => {})
    this.#shell.unref()
  }

  /** The command is over: there is nothing to guard any more. */
  dismiss(): void {
    this.#shell.stdin?.end('over\n')
  }
}
