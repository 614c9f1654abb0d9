// Whoever ends the command when leasehold itself is killed (SIGKILL, out of memory) and can't do it any more.
//
// Linux has PR_SET_PDEATHSIG for that, of which Node knows nothing. So a shell reads from a pipe of which only we have the
// other end: a first line says whom to end, a second that all is over, and the end of the file that we are gone. The command
// waits at a gate (gate.ts) until the shell has answered to the first line. (That it was written is not enough: Bun says so before
// it is.)

import { type ChildProcess, spawn } from 'node:child_process'
import { SHELL } from './gate'

// $1: the seconds between SIGTERM and SIGKILL. The target: a process or, with a minus, a group.
const SCRIPT = `
trap '' HUP INT QUIT TERM PIPE
read -r target || exit 0
echo watching
if read -r _; then exit 0; fi
kill -s TERM -- "$target" 2>/dev/null || exit 0
left=$1
while [ "$left" -gt 0 ] && kill -s 0 -- "$target" 2>/dev/null; do sleep 1; left=$((left - 1)); done
kill -s KILL -- "$target" 2>/dev/null
`

export class Guard {
  readonly #shell: ChildProcess

  /** Made before there is anything to guard, so that no time goes by once there is. Not for Windows. */
  constructor(grace: number) {
    const seconds = Math.ceil(grace / 1_000)
    this.#shell = spawn(SHELL, ['-c', SCRIPT, 'leasehold-guard', String(seconds)], {
      stdio: ['pipe', 'pipe', 'ignore'],
      // Not in the group that it is to end, nor in the one that a terminal interrupts.
      detached: true,
      cwd: '/',
    })
    // Where there is no shell, there is no guard.
    this.#shell.on('error', () => {})
    this.#shell.stdin?.on('error', () => {})
    this.#shell.stdout?.on('error', () => {})
    this.#shell.unref()
  }

  /** Watches over the process, or, if it is negative, the process group. `watching` is called when nothing can prevent that. */
  watch(target: number, watching: () => void): void {
    const { stdin, stdout } = this.#shell
    // Where there is no guard, there is nothing to wait for.
    if (!stdin || !stdout) {
      watching()
      return
    }
    stdout.once('data', () => stdout.destroy())
    stdout.once('close', watching)
    stdin.write(`${target}\n`)
  }

  /** The command is over: there is nothing to guard any more. */
  dismiss(): void {
    this.#shell.stdin?.end('over\n')
  }
}
