// What ends the command, and keeps the lock until it has ended, when leasehold itself is killed (SIGKILL, out of memory).
//
// Linux has PR_SET_PDEATHSIG for that, of which Node knows nothing. So a shell reads from a pipe of which only we have the
// other end: a first line says whom to end, a second how to take the lock over (takeover.ts), a third that all is over, and
// the end of the file that we are gone. The command waits at a gate (gate.ts) until the shell has answered to the second
// line. (That it was written is not enough: Bun says so before it is.)
//
// The shell ends the command, so that nothing else has to work for that. To renew and release the lock it starts a second
// process, the successor (successor.ts). A Node takes a moment to start: where the lock could run out meanwhile, it is there
// from the beginning, and reads from a pipe of its own.

import { type ChildProcess, spawn } from 'node:child_process'
import { SHELL } from './gate'
import { encodeTakeover, OVER, successorCommand, type Takeover } from './takeover'

/**
 * Where the lock lives shorter than this, in ms, the successor is started with the command. Two thirds of it are left at the
 * least when leasehold is killed. Less and a busy machine starts the successor too late; more and it costs its 50 MB of memory
 * more often.
 */
const SHORT_TTL = 3_000

// $1: the seconds between SIGTERM and SIGKILL. $2: where to start the successor. Then its command line. The target: a process or,
// with a minus, a group. The takeover is empty if the successor is there. What is unset first is not in the environment, so
// that what is secret does not get there.
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

/** What is taken over, as long as it is not known until whose end. */
export type Held = Omit<Takeover, 'target'>

export class Guard {
  readonly #held: Held
  readonly #shell: ChildProcess
  readonly #successor: ChildProcess | undefined

  /** Made before there is anything to guard, so that no time goes by once there is. Not for Windows. */
  constructor(held: Held) {
    this.#held = held
    const [file, ...args] = successorCommand()
    const shown = [String(Math.ceil(held.grace / 1_000)), workingFolder(), file, ...args]
    // It stands nowhere, so that no folder is in use because of it.
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

/** Starts a process that reads what we say, and outlives us. */
function standBy(file: string, args: string[], stdout: 'pipe' | 'ignore', cwd?: string): ChildProcess {
  const started = spawn(file, args, {
    stdio: ['pipe', stdout, 'ignore'],
    // Not in the group that is to be ended, nor in the one that a terminal interrupts.
    detached: true,
    cwd,
  })
  // Where it can't be started, there is none.
  started.on('error', () => {})
  started.stdin?.on('error', () => {})
  started.stdout?.on('error', () => {})
  started.unref()
  return started
}
