// The guard: if leasehold itself is killed (SIGKILL, out of memory), it ends the command and keeps
// the lock until the command has ended.
//
// Linux has PR_SET_PDEATHSIG for that, but Node can't set it. So a shell reads from a pipe whose
// other end only this process has. The first line says which process to end, the second how to take
// the lock over (takeover.ts), and a third that the command has ended. The end of the file says
// that this process is gone. The command waits at a gate (gate.ts) until the shell has answered to
// the second line. (That the line was written is not enough: Bun says so before it is.)
//
// The shell itself ends the command, so that this depends on no other program. It starts a second
// process, the successor (successor.ts), to renew and release the lock. Node takes a moment to
// start. If the lock could run out meanwhile, the successor starts with the command and reads from
// its own pipe.

import { type ChildProcess, spawn } from 'node:child_process'
import { SHELL } from './gate'
import { encodeTakeover, OVER, successorCommand, type Takeover } from './takeover'

/**
 * The ttl, in ms, below which the successor starts with the command. When leasehold is killed, at
 * least two thirds of the ttl are left. If this is smaller, a busy machine starts the successor too
 * late; if it is larger, more commands pay for the successor's 50 MB of memory.
 */
const SHORT_TTL = 3_000

// $1 is the number of seconds between SIGTERM and SIGKILL, $2 the directory to start the successor
// in. The successor's command line follows. The target is a process or, with a minus, a group. The
// takeover is empty if the successor already runs. The script unsets both variables first: a
// variable that was in the environment would otherwise export the secrets.
const SCRIPT = `
trap '' HUP INT QUIT TERM PIPE
left=$1 folder=$2
shift 2
unset target takeover
read -r target && read -r takeover || exit 0
echo watching
if read -r _; then exit 0; fi
kill -s TERM -- "$target" 2>/dev/null
there=$?
if [ -n "$takeover" ]; then echo "$takeover" | (cd -- "$folder"; exec "$@") >/dev/null 2>&1 & fi
[ "$there" -eq 0 ] || exit 0
while [ "$left" -gt 0 ] && kill -s 0 -- "$target" 2>/dev/null; do sleep 1; left=$((left - 1)); done
kill -s KILL -- "$target" 2>/dev/null
`

/** A takeover whose target is not known yet. */
export type Held = Omit<Takeover, 'target'>

export class Guard {
  readonly #held: Held
  readonly #shell: ChildProcess
  readonly #successor: ChildProcess | undefined

  /**
   * Starts the guard before the command, so that the command does not wait for it. Not for Windows.
   */
  constructor(held: Held) {
    this.#held = held
    const [file, ...args] = successorCommand()
    const shown = [String(Math.ceil(held.grace / 1_000)), workingFolder(), file, ...args]
    // In the root directory, so that the shell keeps no other directory in use.
    this.#shell = standBy(SHELL, ['-c', SCRIPT, 'leasehold-guard', ...shown], 'pipe', '/')
    this.#successor = held.ticket.ttl < SHORT_TTL ? standBy(file, args, 'ignore') : undefined
  }

  /** Watches over the process, or, if it is negative, the process group. `watching` is called when nothing can prevent that. */
  watch(target: number, watching: () => void): void {
    const takeover = encodeTakeover({ ...this.#held, target })
    this.#successor?.stdin?.write(`${takeover}\n`)
    const { stdin, stdout } = this.#shell
    // Where there is no guard, there is nothing to wait for.
    if (!stdin || !stdout) {
      watching()
      return
    }
    stdout.once('data', () => stdout.destroy())
    stdout.once('close', watching)
    stdin.write(`${target}\n${this.#successor === undefined ? takeover : ''}\n`)
  }

  /** The command is over: there is nothing to guard any more. */
  dismiss(): void {
    for (const process of [this.#successor, this.#shell]) process?.stdin?.end(`${OVER}\n`)
  }
}

/** Where a store's relative path begins. */
function workingFolder(): string {
  try {
    return process.cwd()
  } catch {
    // It was deleted.
    return '/'
  }
}

/** Starts a process that reads from a pipe of this one, and outlives it. */
function standBy(file: string, args: string[], stdout: 'pipe' | 'ignore', cwd?: string): ChildProcess {
  const started = spawn(file, args, {
    stdio: ['pipe', stdout, 'ignore'],
    // Neither in the group that the guard ends, nor in the one that a terminal interrupts.
    detached: true,
    cwd,
  })
  // If the process can't be started, there is no guard.
  started.on('error', () => {})
  started.stdin?.on('error', () => {})
  started.stdout?.on('error', () => {})
  started.unref()
  return started
}
