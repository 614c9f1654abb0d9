// The guard: if leasehold itself is killed (SIGKILL, out of memory), it ends the command and keeps
// the lock until the command has ended.
//
// Linux has PR_SET_PDEATHSIG for that, but Node can't set it. So a shell reads from a pipe whose
// other end only this process has. The first line says which process to end, the second how to take
// the lock over (takeover.ts), and a third that the command has ended. The end of the file says
// that this process is gone. The command waits at a gate (gate.ts) until the shell has answered to
// the second line. (A write that has ended is not enough: Bun reports the end before the line is
// written.) The successor answers, too, if it starts before the command.
//
// The shell itself ends the command, because a process that has yet to start could fail. The
// shell starts a second process, the successor (successor.ts), to renew and release the lock. Node
// takes a moment to start. If the lock could run out meanwhile, the successor starts before the
// command and reads from its own pipe. The shell finds the processes of the command's session; the
// successor finds all.

import { type ChildProcess, spawn } from 'node:child_process'
import { forShell, SHELL } from './gate'
import { UNMARKED } from './mark'
import type { CommandId } from './members'
import { encodeTakeover, OVER, successorCommand, type Takeover } from './takeover'

/**
 * The ttl, in ms, below which the successor starts before the command. When leasehold is killed, at
 * least two thirds of the ttl are left. If this is smaller, a busy machine starts the successor so
 * late that the guard ends the command first; if it is larger, more commands pay for the
 * successor's 50 MB of memory.
 */
const SHORT_TTL = 5_000

/**
 * Returns how long the guard takes a lock to be held after a renewal, in hundredths of a second. Two
 * thirds of the ttl are left then. Half of this is for the guard, which looks once per second, and
 * more rarely on a busy machine. If it is smaller than 1.25 s, the guard ends a command although its
 * lock is renewed.
 */
export const uncheckedFor = (ttl: number): number => Math.max(125, Math.floor(ttl / 30))

// $1 is the number of seconds between SIGTERM and SIGKILL, $2 what uncheckedFor returns, $3 the
// directory to start the successor in. The successor's command line
// follows, to which the script appends its own process id. The target is a process or, with a
// minus, a process group whose session has the same id. The id of a successor that already runs
// comes after the target; then the takeover is empty. The script unsets its variables first.
// Otherwise, if the environment has a variable of the same name, the shell would export the
// secrets.
//
// The command must end before its lock, and a successor can be killed, too. So a successor sends
// SIGUSR1 as long as it renews the lock (successor.ts). The lock surely lasts until `safe`, which
// depends on the last of these signals. A shell hears of a signal only after its pause, so the script
// counts from when it last read the time before that. It reads the time, in hundredths of a second,
// because on a busy machine it takes longer than 1 s to start `sleep 1`. Without /proc, it counts.
// Until leasehold is gone, the script ignores SIGUSR1: in some shells, it would end the `read` as if
// leasehold were gone.
//
// It sends signals in the form `kill -TERM ID`: BusyBox does not know `kill -s TERM -- ID`, and
// others read a negative ID without `--` as an option of `kill -s`.
//
// others sends the signals $1 and $2 to the processes of the session that are in other groups, and
// fails if there are none. It needs /proc. On a busy machine with many processes, this search can
// take so long that the lock ends meanwhile. So the script starts the successor before it calls
// others, and others stops at `safe`, unless it sends SIGKILL.
//
// The script needs the program `sleep`, so it appends the usual directories to PATH: the command's
// PATH may lack them.
//
// No step up to SIGKILL needs a new process, because the system may have no room for one
// (pids.max). If a shell can't start a process, the shell ends, unless `command eval` starts the
// process (dash, busybox). With such a shell, pause reads /proc until the next second begins, and
// the script starts the successor later. Other shells end, and then the trap sends SIGKILL.
export const SCRIPT = `
PATH=\${PATH:+$PATH:}/usr/bin:/bin
trap '' HUP INT QUIT TERM PIPE USR1
left=$1 short=$2 folder=$3
shift 3
unset target takeover session line stat pid from next safe before
successor= renews= now=0 tries=10
others() {
  set -- "$1" "$2" 1
  [ -n "$session" ] || return 1
  for stat in /proc/[0-9]*/stat; do
    line=
    read -r line <"$stat" || continue
    pid=\${stat#/proc/}
    is_other \${line##*) } && kill -"$1" "\${pid%/stat}" && kill -"$2" "\${pid%/stat}" && set -- "$1" "$2" 0
    [ "$1" = KILL ] || ! late || return 0
  done
  return "$3"
} 2>/dev/null
is_other() { [ "$4" = "$session" ] && [ "$3" != "$session" ] && [ "$1" != Z ]; }
end() {
  kill -KILL "$target"
  others KILL KILL
} 2>/dev/null
pause() {
  command eval 'sleep 1' && return
  read -r from _ </proc/uptime
  while read -r next _ </proc/uptime && [ "\${next%.*}" = "\${from%.*}" ]; do :; done
} 2>/dev/null
clock() {
  read -r next _ </proc/uptime || return
  passed $((\${next%.*} * 100 + 1\${next#*.} - 100))
} 2>/dev/null
passed() {
  before=$now now=$1
  [ -z "$renews" ] || safe=$((before + short))
  renews=
}
late() { clock && [ "$now" -ge "$safe" ]; }
start() {
  successor=
  command eval 'echo "$takeover" | (cd -- "$folder"; exec "$@" "$$") >/dev/null &' && successor=$!
} 2>/dev/null
runs() { [ -n "$successor" ] && kill -0 "$successor"; } 2>/dev/null
read -r target successor && read -r takeover || exit 0
echo watching
if read -r _; then exit 0; fi
clock
safe=$((now + short))
trap 'renews=1' USR1
case $target in -*) session=\${target#-} ;; esac
trap end EXIT
kill -TERM "$target" 2>/dev/null
kill -CONT "$target" 2>/dev/null
[ -z "$takeover" ] || start "$@"
others TERM CONT
while [ "$left" -gt 0 ] && { kill -0 "$target" 2>/dev/null || others 0 0; }; do
  [ -z "$takeover" ] || runs || start "$@"
  clock
  [ "$now" -lt "$safe" ] || break
  pause
  clock || passed $((now + 100))
  left=$((left - 1))
done
end
trap - EXIT
# A signal would end "wait".
trap '' USR1
while [ -n "$takeover" ] && [ "$tries" -gt 0 ]; do
  [ -n "$successor" ] && wait "$successor" && break
  pause
  start "$@"
  tries=$((tries - 1))
done
`

/** Describes a takeover before its command is started. */
export type Held = Omit<Takeover, 'command'>

export class Guard {
  readonly #held: Held
  readonly #shell: ChildProcess
  readonly #successor: ChildProcess | undefined

  /**
   * Starts the guard. Call it before the command is started, so that the command does not wait for
   * the guard. Do not call it on Windows or without {@link SHELL}.
   *
   * @throws if the system can't start the guard.
   */
  constructor(held: Held) {
    this.#held = held
    const [file, ...args] = successorCommand()
    const { ttl } = held.ticket
    const times = [Math.ceil(held.grace / 1_000), uncheckedFor(ttl)]
    const shown = [...times.map(String), workingFolder(), file, ...args]
    // In the root directory, so that the shell keeps no other directory in use.
    this.#shell = standBy(SHELL, ['-c', SCRIPT, 'leasehold-guard', ...shown], '/')
    try {
      this.#successor = ttl < SHORT_TTL ? standBy(file, [...args, String(this.#shell.pid)]) : undefined
    } catch (error) {
      this.#shell.stdin?.end()
      throw error
    }
  }

  /**
   * Resolves with true once the guard is sure to watch over the command, and with false if the
   * guard ends before that. If the successor was started before the command, it has to be ready,
   * too.
   */
  async watch(command: CommandId): Promise<boolean> {
    const takeover = encodeTakeover({ ...this.#held, command })
    const { pid, leads } = command
    this.#successor?.stdin?.write(`${takeover}\n`)
    const target = [leads ? -pid : pid, this.#successor?.pid].join(' ')
    this.#shell.stdin?.write(`${target}\n${this.#successor === undefined ? takeover : ''}\n`)
    const [watches, isReady] = await Promise.all([answers(this.#shell), !this.#successor || answers(this.#successor)])
    return watches && isReady
  }

  /** Ends the guard. Call it when the command is over. */
  dismiss(): void {
    for (const process of [this.#successor, this.#shell]) {
      process?.stdin?.end(`${OVER}\n`)
      // The open pipe would keep this process alive until the guard has ended.
      process?.stdout?.destroy()
    }
  }
}

/** Resolves with true if a process prints anything before it ends, otherwise with false. */
function answers({ stdout }: ChildProcess): Promise<boolean> {
  return new Promise((resolve) => {
    stdout?.once('data', () => {
      stdout.destroy()
      resolve(true)
    })
    stdout?.once('close', () => resolve(false))
  })
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
function standBy(file: string, args: string[], cwd?: string): ChildProcess {
  const started = spawn(file, args, {
    stdio: ['pipe', 'pipe', 'ignore'],
    // Keep it out of the group that the guard ends, and out of the one that a terminal interrupts.
    detached: true,
    cwd,
    // If this process is the command of another leasehold, that leasehold must not stop the guard.
    env: { ...forShell(process.env), ...UNMARKED },
  })
  started.on('error', () => {})
  if (started.pid === undefined) throw new Error(`the system could not start ${file}`)
  started.stdin?.on('error', () => {})
  started.stdout?.on('error', () => {})
  started.unref()
  return started
}
