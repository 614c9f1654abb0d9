// The command that runs while the lock is held: a process, and, where there is no terminal, its group.

import { type ChildProcess, spawn } from 'node:child_process'
import type { Socket } from 'node:net'
import { constants } from 'node:os'
import { whyNot } from './executable'
import { CliError, Exit } from './exits'
import { gateOf, isGated, openGate, SHELL } from './gate'
import { Guard, type Held } from './guard'
import { isGoneWithin, kill } from './target'

/** How it ended: one of the two. */
export interface End {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** Those that are passed on. SIGUSR1 is Node's own otherwise: it opens a debugger. */
const PASSED = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const
/** What a terminal sends by itself to all that run in front. */
const OF_TERMINAL: readonly string[] = ['SIGINT', 'SIGQUIT']
/**
 * Signals that ask a command to end. SIGHUP is not one: many commands read their settings again on
 * it.
 */
const ENDING: readonly string[] = ['SIGINT', 'SIGTERM', 'SIGQUIT']
/**
 * How long to wait for killed processes to be gone, in ms. Only a process that waits for a disk
 * takes longer. If this is larger, such a process delays the next command; if it is smaller, the
 * lock may be free while the process still runs.
 */
const KILLED_WITHIN = 1_000
const ON_WINDOWS = process.platform === 'win32'

export class Child {
  readonly #process: ChildProcess
  readonly #guard: Guard | undefined
  readonly #onTerminal: boolean
  readonly #grace: number
  readonly #listeners: [NodeJS.Signals, () => void][] = []
  #killer: NodeJS.Timeout | undefined
  #stopped = false
  /** Whether a signal was passed on that asks the command to end. */
  #asked = false
  #over = false
  /** Resolves when it is guarded and runs; not at all if it could not be started. */
  readonly started: Promise<void>
  /**
   * Resolves when the command is gone. If it did not end by itself and has a process group of its
   * own, resolves when the whole group is gone. Rejects with a {@link CliError} if the command
   * could not be started.
   */
  readonly ended: Promise<End>

  /** @throws {CliError} if there is no such command, or it can't be run. */
  constructor(command: readonly string[], env: NodeJS.ProcessEnv, held: Held) {
    this.#grace = held.grace
    const [file = '', ...args] = command
    const code = ON_WINDOWS ? undefined : whyNot(file, env)
    if (code !== undefined) throw notStarted(file, code, 'it is no file, or none that may be executed')
    // One that may read from the terminal has to stay in the terminal's foreground, which is our group. Elsewhere it gets
    // a group of its own, so that all of it can be ended.
    this.#onTerminal = [0, 1, 2].some((fd) => isTerminal(fd))
    const detached = !this.#onTerminal && !ON_WINDOWS
    // Before there is anything to end: a signal that comes while it starts would else end us alone.
    for (const signal of PASSED) this.#listen(signal)
    this.#guard = ON_WINDOWS ? undefined : new Guard(held)
    const options = { env, detached, windowsHide: true }
    const gated = isGated(file, env)
    this.#process = gated
      ? spawn(SHELL, gateOf(command, env), { ...options, stdio: ['inherit', 'inherit', 'inherit', 'pipe'] })
      : spawn(file, args, { ...options, stdio: 'inherit' })
    const { pid } = this.#process
    this.started = new Promise((resolve) => {
      if (pid === undefined) return
      const watched = () => {
        if (gated) openGate(this.#process.stdio[3] as Socket)
        resolve()
      }
      if (this.#guard === undefined) watched()
      else this.#guard.watch(detached ? -pid : pid, watched)
    })
    this.ended = new Promise<End>((resolve, reject) => {
      this.#process.once('error', (error: NodeJS.ErrnoException) => {
        if (this.#process.pid !== undefined) return
        this.#end()
        reject(notStarted(file, error.code, error.message))
      })
      this.#process.once('exit', (code, signal) => {
        this.#groupGone(signal !== null).then(() => {
          this.#end()
          resolve({ code, signal })
        })
      })
    })
  }

  /** Its number, if it could be started: before that the gate's. */
  get pid(): number | undefined {
    return this.#process.pid
  }

  /** Ends the command: sends SIGTERM, and SIGKILL if the command still runs after its grace. */
  stop(): void {
    if (this.#over || this.#stopped) return
    this.#stopped = true
    if (this.#grace === 0) {
      this.#signal('SIGKILL')
      return
    }
    this.#signal('SIGTERM')
    // One that is stopped takes its SIGTERM only when it goes on.
    if (!ON_WINDOWS) this.#signal('SIGCONT')
    this.#killer = setTimeout(() => this.#signal('SIGKILL'), this.#grace)
  }

  #listen(signal: NodeJS.Signals): void {
    const pass = () => {
      if (this.#onTerminal && OF_TERMINAL.includes(signal)) return
      if (ENDING.includes(signal)) this.#asked = true
      this.#signal(signal)
    }
    try {
      process.on(signal, pass)
      this.#listeners.push([signal, pass])
    } catch {
      // Windows has not all of them.
    }
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#process
    if (pid === undefined || this.#over) return
    kill(this.#onTerminal || ON_WINDOWS ? pid : -pid, signal)
  }

  /**
   * Resolves when the group of the ended command is gone. If the command ended by itself, resolves
   * at once: it left the other processes behind on purpose. If a signal ended it or asked it to
   * end, the others have the grace to end, too, and are then killed. After stop(), they are killed
   * at once.
   */
  async #groupGone(bySignal: boolean): Promise<void> {
    const { pid } = this.#process
    if (pid === undefined || this.#onTerminal || ON_WINDOWS) return
    if (!this.#stopped) {
      if (!this.#asked && !bySignal) return
      if (await isGoneWithin(-pid, this.#grace)) return
    }
    kill(-pid, 'SIGKILL')
    await isGoneWithin(-pid, KILLED_WITHIN)
  }

  #end(): void {
    clearTimeout(this.#killer)
    this.#over = true
    for (const [signal, pass] of this.#listeners) process.off(signal, pass)
    this.#guard?.dismiss()
  }
}

function isTerminal(fd: number): boolean {
  const stream = [process.stdin, process.stdout, process.stderr][fd]
  return stream?.isTTY === true
}

function notStarted(file: string, code: string | undefined, why: string): CliError {
  if (code === 'ENOENT') return new CliError(Exit.NotFound, `no command ${JSON.stringify(file)} was found`)
  return new CliError(Exit.NotExecutable, `${JSON.stringify(file)} can't be run: ${why}`)
}

/** Ends this process as the command ended: of the same signal, or with the code that a shell would have. */
export function endAlike({ code, signal }: End): number {
  if (signal === null) return code ?? Exit.Ok
  const mild: readonly string[] = ['SIGINT', 'SIGTERM', 'SIGHUP']
  // A shell stops a script when it sees that; those that would leave a core of ours are only told.
  if (mild.includes(signal) && !ON_WINDOWS) process.kill(process.pid, signal)
  return Exit.Signal + (constants.signals[signal] ?? 0)
}
