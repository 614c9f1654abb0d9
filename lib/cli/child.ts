// The command that runs while the lock is held: a process, and all processes that it starts.

import { type ChildProcess, spawn } from 'node:child_process'
import type { Socket } from 'node:net'
import { constants } from 'node:os'
import type * as api from '../../index'
import { whyNot } from './executable'
import { CliError, Exit } from './exits'
import { gateOf, isGated, openGate, SHELL } from './gate'
import type { Guard, Held } from './guard'
import { MARK, newMark } from './mark'
import type { Member } from './members'
import { hasExited, statusOf } from './process-table'
import { isVariable, shownProgram } from './shown-program'
import type { Signals } from './signals'
import { Target } from './target'
import { unguarded } from './unguarded'

/** How the command ended: one of the two is not null. */
export interface End {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The signals that a terminal sends by itself to all processes in its foreground. */
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
  /** The processes whose end frees the lock; `undefined` if the command could not be started. */
  readonly #target: Target | undefined
  readonly #onTerminal: boolean
  readonly #grace: number
  readonly #signals: Signals
  #killer: NodeJS.Timeout | undefined
  /** When a command that {@link stop} has asked to end is killed, in ms of `performance.now()`. */
  #killAt: number | undefined
  /** Whether a signal that asks the command to end was passed on. */
  #asked = false
  #tellGuardEnding = () => {}
  /** Why the command must not run although its process was started. */
  #unguarded: CliError | undefined
  #over = false
  /**
   * Resolves when the command runs and its guard watches over it. Never resolves if one of the two
   * fails.
   */
  readonly started: Promise<void>
  /**
   * Resolves when the guard has begun to end the command, because this process was stopped for too
   * long. Never resolves otherwise.
   */
  readonly guardEnding = new Promise<void>((resolve) => {
    this.#tellGuardEnding = resolve
  })
  /**
   * Resolves when the command is gone. If it did not end by itself, resolves when all processes
   * that it started are gone, too. Rejects with a {@link CliError} if the command could not be
   * started, or has no guard.
   */
  readonly ended: Promise<End>

  /**
   * Passes `signals` on to the command until it has ended, and ignores them from then on. `guard`
   * watches over the command until then.
   *
   * @throws {CliError} if there is no such command, or it can't be run.
   */
  constructor(
    command: readonly string[],
    env: NodeJS.ProcessEnv,
    held: Held,
    lease: api.Lease,
    signals: Signals,
    guard: Guard | undefined,
  ) {
    this.#grace = held.grace
    this.#signals = signals
    this.#guard = guard
    const [file = '', ...args] = command
    const code = ON_WINDOWS ? undefined : whyNot(file, env)
    if (code !== undefined) throw notStarted(file, code, 'it is no file, or none that may be executed')
    // A command that may read from the terminal has to stay in the terminal's foreground, which is
    // our group. Elsewhere, the command gets a session and a group of its own, so that all its
    // processes can be ended.
    this.#onTerminal = [0, 1, 2].some((fd) => isTerminal(fd))
    const leads = !this.#onTerminal && !ON_WINDOWS
    guard?.ending.then(() => {
      // The guard has sent SIGTERM already.
      this.#killAfterGrace()
      this.#tellGuardEnding()
    })
    guard?.failed.then(() => this.#killNow())
    // Listen before the command starts. Otherwise, a signal that comes meanwhile would end this
    // process, but not the command.
    signals.listen((signal) => this.#pass(signal))
    const { run, mark } = newMark(env[MARK])
    const marked = { ...env, [MARK]: mark }
    const options = { env: marked, detached: leads, windowsHide: true }
    const gated = isGated(file, marked)
    try {
      this.#process = gated
        ? spawn(SHELL, gateOf(command, marked), { ...options, stdio: ['inherit', 'inherit', 'inherit', 'pipe'] })
        : spawn(file, args, { ...options, stdio: 'inherit' })
    } catch (error) {
      this.#end()
      throw notStarted(file, (error as NodeJS.ErrnoException).code, (error as Error).message)
    }
    const { pid } = this.#process
    const id = pid === undefined ? undefined : { pid, start: statusOf(pid)?.start, leads, run }
    this.#target = id && new Target(id)
    this.started = new Promise((resolve) => {
      if (id === undefined) return
      const watched = () => {
        // This process may have been stopped for longer than the ttl. The command must not begin
        // while that of the next holder runs.
        if (gated && !lease.isHeld) return this.stop()
        if (gated) openGate(this.#process.stdio[3] as Socket)
        resolve()
      }
      if (guard === undefined) watched()
      else guard.watch(held, lease, id).then((watches) => (watches ? watched() : this.#refuse(file, gated)))
    })
    this.ended = new Promise<End>((resolve, reject) => {
      this.#process.once('error', (error: NodeJS.ErrnoException) => {
        if (this.#process.pid !== undefined) return
        this.#end()
        reject(notStarted(file, error.code, error.message))
      })
      this.#process.once('exit', (code, signal) => {
        this.#restGone(signal !== null).then(() => {
          this.#end()
          if (this.#unguarded) reject(this.#unguarded)
          else resolve({ code, signal })
        })
      })
    })
  }

  /**
   * The id of its process, which is the gate until the command runs; `undefined` if it could not be
   * started.
   */
  get pid(): number | undefined {
    return this.#process.pid
  }

  /** True when the command is gone: see {@link ended}. */
  get isOver(): boolean {
    return this.#over
  }

  /** Tells the guard that the lock was renewed. */
  renewed(): void {
    this.#guard?.renewed()
  }

  /**
   * Ends the command: sends SIGTERM, and SIGKILL if any of its processes still runs after the
   * grace.
   */
  stop(): void {
    if (!this.#killAfterGrace() || this.#grace === 0) return
    this.#target?.endOthers(this.#signal('SIGTERM'))
  }

  /**
   * Kills the command after the grace. Returns false if the command is over, or if an earlier call
   * kills it.
   */
  #killAfterGrace(): boolean {
    if (this.#over || this.#killAt !== undefined) return false
    this.#guard?.asked()
    this.#killAt = performance.now() + this.#grace
    if (this.#grace === 0) this.#target?.kill()
    else this.#killer = setTimeout(() => this.#target?.kill(), this.#grace)
    return true
  }

  /** Kills the command at once. */
  #killNow(): void {
    if (this.#over) return
    clearTimeout(this.#killer)
    this.#killAt = performance.now()
    this.#target?.kill()
  }

  /**
   * Ends a command whose guard does not watch over it. A command behind a gate has not begun by
   * then.
   */
  #refuse(file: string, gated: boolean): void {
    if (this.#over) return
    this.#unguarded = unguarded(file, gated ? 'was not run' : 'was stopped', 'has ended; run it again')
    this.stop()
  }

  #pass(signal: NodeJS.Signals): void {
    if (this.#onTerminal && OF_TERMINAL.includes(signal)) return
    // This signal does not end a command that has already ended by itself, even if Node has not
    // reported the end yet.
    const { pid } = this.#process
    if (ENDING.includes(signal) && !(pid !== undefined && hasExited(pid))) {
      this.#asked = true
      this.#guard?.asked()
    }
    this.#signal(signal)
  }

  /** Sends a signal to the command. Returns the members that ran before the signal. */
  #signal(signal: NodeJS.Signals): readonly Member[] {
    const target = this.#target
    if (this.#over || target === undefined) return []
    // Look before the signal: it may end a parent, and some members are only found by their parent.
    const members = target.look()
    target.signal(signal)
    // A stopped process handles the signal only when it continues.
    if (ENDING.includes(signal) && !ON_WINDOWS) target.signal('SIGCONT')
    return members
  }

  /**
   * Resolves when all processes that the ended command has started are gone. If the command ended
   * by itself, resolves at once: it left the other processes behind on purpose. If a signal ended
   * it or asked it to end, the others have the grace to end, too, and are then killed. After
   * stop(), they have the rest of the grace.
   */
  async #restGone(bySignal: boolean): Promise<void> {
    const target = this.#target
    if (target === undefined || ON_WINDOWS) return
    if (this.#killAt === undefined) {
      if (!this.#asked && !bySignal) return
      if (this.#grace > 0) this.#endRest(target)
    }
    const killAt = this.#killAt ?? performance.now() + this.#grace
    if (await target.isGoneWithin(Math.max(0, killAt - performance.now()))) return
    await target.isKilledWithin(KILLED_WITHIN)
  }

  /** Sends SIGTERM to the processes that were not reached by the signal that ended the command. */
  #endRest(target: Target): void {
    // A terminal sends its signals to its whole foreground, which is our group.
    const reached = this.#onTerminal && !this.#asked ? statusOf(process.pid)?.group : undefined
    target.endOthers(target.look(), (member) => member.group === reached)
  }

  #end(): void {
    clearTimeout(this.#killer)
    this.#over = true
    this.#signals.ignore()
    this.#guard?.commandGone()
  }
}

function isTerminal(fd: number): boolean {
  const stream = [process.stdin, process.stdout, process.stderr][fd]
  return stream?.isTTY === true
}

function notStarted(file: string, code: string | undefined, why: string): CliError {
  if (code === 'ENOENT') {
    const advice = isVariable(file) ? '; set variables before leasehold' : ''
    return new CliError(Exit.NotFound, `no command ${shownProgram(file)} was found${advice}`)
  }
  return new CliError(Exit.NotExecutable, `${shownProgram(file)} can't be run: ${why}`)
}

/**
 * Ends this process by the signal that ended the command, or returns the exit code that a shell
 * would return. Call it after the lock was released.
 */
export function endAlike({ code, signal }: End, signals: Signals): number {
  if (signal === null) return code ?? Exit.Ok
  const mild: readonly string[] = ['SIGINT', 'SIGTERM', 'SIGHUP']
  // A shell stops a script when these signals end a command. Other signals would leave a core file
  // of this process, so only the exit code reports them.
  if (mild.includes(signal) && !ON_WINDOWS) {
    signals.remove()
    process.kill(process.pid, signal)
  }
  return Exit.Signal + (constants.signals[signal] ?? 0)
}
