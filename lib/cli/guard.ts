// The guard: if leasehold itself is killed (SIGKILL, out of memory), it ends the command and keeps
// the lock until the command has ended.
//
// Linux has PR_SET_PDEATHSIG for that, but Node can't set it. So a shell reads from a pipe whose
// other end only this process has. The first line says which process to end, and the second line
// how to take the lock over (takeover.ts). A later line says until when the lock is safe after a
// renewal, or that the command has ended. The end of the file says that this process is gone. The
// command waits at a gate (gate.ts) until the shell has answered the second line. (A write that has
// ended is not enough: Bun reports the end before the line is written.) If the successor starts
// before the command, the successor answers, too.
//
// The shell itself ends the command, because a process that has yet to start could fail. The
// shell starts a second process, the successor (successor.ts), to renew and release the lock. Node
// takes a moment to start. If the lock could run out meanwhile, the successor starts before the
// command and reads from its own pipe. The shell finds the processes of the command's session; the
// successor finds all.

import { type ChildProcess, spawn } from 'node:child_process'
import type * as api from '../../index'
import { forShell, SHELL } from './gate'
import { SCRIPT, uncheckedFor } from './guard-script'
import { UNMARKED } from './mark'
import type { CommandId } from './members'
import { encodeTakeover, OVER, successorCommand, type Takeover } from './takeover'
import { uptime } from './uptime'

/**
 * The ttl, in ms, below which the successor starts before the command. When leasehold is killed, at
 * least two thirds of the ttl are left. If this is smaller, a busy machine starts the successor so
 * late that the guard ends the command first; if it is larger, more commands pay for the
 * successor's 50 MB of memory.
 */
const SHORT_TTL = 5_000

/** Describes a takeover before its command is started. */
export type Held = Omit<Takeover, 'command'>

export class Guard {
  readonly #held: Held
  readonly #lease: api.Lease
  readonly #shell: ChildProcess
  readonly #successor: ChildProcess | undefined
  /** Whether the shell has yet to answer the last line. */
  #isAwaited = true
  /** Whether a renewal has to be reported when the shell has answered. */
  #isDue = false

  /**
   * Starts the guard of a command that runs while `lease` is held. Call the constructor before you
   * start the command, so that the command does not wait for the guard. Do not call it on Windows
   * or without {@link SHELL}.
   *
   * @throws if the system can't start the guard.
   */
  constructor(held: Held, lease: api.Lease) {
    this.#held = held
    this.#lease = lease
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
    const target = [leads ? -pid : pid, this.#safeUntil(), this.#successor?.pid].join(' ')
    this.#shell.stdin?.write(`${target}\n${takeover}\n`)
    this.#shell.stdout?.on('data', () => {
      this.#isAwaited = false
      if (this.#isDue) this.renewed()
    })
    const [watches, isReady] = await Promise.all([answers(this.#shell), !this.#successor || answers(this.#successor)])
    return watches && isReady
  }

  /**
   * Reports a renewal of the lock to the guard. Sends nothing until the guard has answered the last
   * report. Otherwise, the pipe of a stopped guard would fill up, and the guard would not hear of
   * the end of the command.
   */
  renewed(): void {
    this.#isDue = this.#isAwaited
    const safe = this.#safeUntil()
    if (this.#isAwaited || safe === 0 || !this.#shell.stdin?.writable) return
    this.#isAwaited = true
    this.#shell.stdin.write(`${safe}\n`)
  }

  /**
   * Returns until when the lock is safe, in hundredths of a second since the boot: a third of its
   * ttl is left then. The guard reads the same clock. Returns 0 without /proc.
   */
  #safeUntil(): number {
    // Read the time first: this process may be stopped in between.
    const now = uptime()
    const { remaining, ttl } = this.#lease
    return now === undefined ? 0 : Math.max(1, now + Math.floor((remaining - ttl / 3) / 10))
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
    stdout?.once('data', () => resolve(true))
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
