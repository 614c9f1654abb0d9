// The guard: if leasehold itself is killed (SIGKILL, out of memory), it ends the command and keeps
// the lock held until the command has ended. It does the same if leasehold is stopped (SIGSTOP)
// until the lock is about to end.
//
// Linux has PR_SET_PDEATHSIG for that, but it reaches only one process, and not its children. So
// another Node process (guard-main.ts) reads from a pipe whose other end only this process has. The
// first lines say which command to end, and how to take the lock over (takeover.ts). A later line
// says until when the lock is safe after a renewal, that the command is gone, or that the lock was
// released. The end of the input says that this process is gone. The command waits at a gate
// (gate.ts) until the guard has answered that it watches. (A write that has ended is not enough:
// Bun reports the end before the line is written.)
//
// The guard can be killed, too. Then leasehold starts another one at once. Until the new one
// watches, no process would end the command.

import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../../index'
import type { CommandId } from './command-id'
import { GuardProcess } from './guard-process'
import { encode, encodeReport, GONE_COMMAND, type Takeover } from './takeover'
import { unguarded } from './unguarded'
import { uptime } from './uptime'

/**
 * How often to continue the guard, in ms: a signal may have stopped it. If this is larger,
 * leasehold is more likely to be stopped or killed while the guard is stopped. If it is smaller,
 * leasehold wakes more often.
 */
const CONTINUE_EVERY = 1_000

/** Describes a takeover before its command is started. */
export type Held = Omit<Takeover, 'command'>

export class Guard {
  readonly #options: api.LockClientOptions
  #process: GuardProcess
  #watched: Watched | undefined
  #isAsked = false
  #isEnding = false
  /** Continues the guard from time to time. */
  #timer: NodeJS.Timeout | undefined
  #tellEnding = () => {}
  #tellFailed = () => {}
  #tellAbsent = () => {}
  /**
   * Resolves when the guard ends the command because this process was stopped for too long. Never
   * resolves otherwise.
   */
  readonly ending = new Promise<void>((resolve) => {
    this.#tellEnding = resolve
  })
  /**
   * Resolves when the guard has ended while it was ending the command. From then on, no process
   * renews the lock. Never resolves otherwise.
   */
  readonly failed = new Promise<void>((resolve) => {
    this.#tellFailed = resolve
  })
  /**
   * Resolves when the guard has ended while the command runs, and another one could not be started.
   * After each renewal, {@link renewed} tries again. Never resolves otherwise.
   */
  readonly absent = new Promise<void>((resolve) => {
    this.#tellAbsent = resolve
  })

  /**
   * Starts a guard, which waits for {@link watch}. Start it before the lock is acquired: the guard
   * needs about as long to start as this process. Do not start it on Windows. `options` are those
   * of the client that acquires the lock.
   *
   * @throws if the system can't start the guard.
   */
  constructor(options: api.LockClientOptions) {
    this.#options = options
    this.#process = this.#start()
  }

  #start(): GuardProcess {
    const started = new GuardProcess(encode(this.#options))
    started.ending.then(() => {
      this.#isEnding = true
      this.#tellEnding()
    })
    return started
  }

  /**
   * Lets the guard watch over a command that runs while `lease` is held. Resolves with true once
   * the guard is sure to do so, and with false if the guard ends before that.
   */
  async watch(held: Held, lease: api.Lease, command: CommandId): Promise<boolean> {
    const watched = { takeover: { ...held, command }, lease }
    this.#watched = watched
    this.#timer = setInterval(() => this.#process.continue(), CONTINUE_EVERY).unref()
    return await this.#beginTwice(watched)
  }

  /** Begins to watch, and tries once more if the guard ends before it watches. */
  async #beginTwice(watched: Watched): Promise<boolean> {
    if (await this.#beginAny(watched)) return true
    // The command may be over by now.
    return this.#watched !== undefined && (await this.#beginAny(watched))
  }

  /** Begins to watch, with another guard if this one has ended. */
  async #beginAny(watched: Watched): Promise<boolean> {
    try {
      if (this.#process.isGone) this.#process = this.#start()
    } catch {
      return false
    }
    return await this.#begin(this.#process, watched)
  }

  async #begin(process: GuardProcess, watched: Watched): Promise<boolean> {
    const watches = process.begin(`${encode(watched.takeover)} ${this.#report(watched)}`)
    process.gone.then(async () => (await watches) && this.#ended(process))
    return await watches
  }

  #ended(gone: GuardProcess): void {
    if (this.#isEnding && this.#watched !== undefined) this.#tellFailed()
    else this.#replace(gone)
  }

  /** Starts another guard in the place of one that has ended. */
  async #replace(gone: GuardProcess): Promise<void> {
    if (this.#watched === undefined || this.#isEnding || this.#process !== gone) return
    if (!(await this.#beginTwice(this.#watched)) && this.#watched !== undefined) this.#tellAbsent()
  }

  /** Reports a renewal of the lock. */
  renewed(): void {
    if (this.#watched === undefined) return
    if (this.#process.isGone) this.#replace(this.#process)
    else this.#process.report(this.#report(this.#watched))
  }

  /**
   * Reports that the command was asked to end, by this process or by a signal that it passed on.
   * Does not wait for the answer to the last report: this process may be stopped by then.
   */
  asked(): void {
    if (this.#isAsked) return
    this.#isAsked = true
    if (this.#watched !== undefined) this.#process.urge(this.#report(this.#watched))
  }

  #report({ lease }: Watched): string {
    // Read the time first: this process may be stopped in between.
    const now = uptime()
    const { remaining, ttl } = lease
    const safe = now === undefined ? undefined : Math.floor(now + remaining - ttl / 3)
    return encodeReport({ safe, isAsked: this.#isAsked })
  }

  /**
   * Reports that the command is gone. If this process is killed before {@link dismiss}, the guard
   * releases the lock.
   */
  commandGone(): void {
    this.#watched = undefined
    this.#process.urge(GONE_COMMAND)
  }

  /** Ends the guard. Call it when the lock was released, or the command will not be started. */
  dismiss(): void {
    this.#watched = undefined
    clearInterval(this.#timer)
    this.#process.dismiss()
  }

  /** Resolves when the guard has ended, but waits for at most `limit` ms. */
  async endsWithin(limit: number): Promise<void> {
    const timer = new AbortController()
    const over = sleep(limit, undefined, { signal: timer.signal }).catch(() => {})
    await Promise.race([this.#process.exited, over])
    // The timer would keep this process alive.
    timer.abort()
  }
}

interface Watched {
  readonly takeover: Takeover
  readonly lease: api.Lease
}

/**
 * Starts the guard of a command. `file` is the command's program, and `options` are those of the
 * client. Returns `undefined` on Windows, where signals and process groups work differently.
 *
 * @throws {CliError} if the system can't start it.
 */
export function startGuard(file: string, options: api.LockClientOptions): Guard | undefined {
  if (process.platform === 'win32') return undefined
  try {
    return new Guard(options)
  } catch (error) {
    const why = `${(error as Error).message}. Raise the limits on open files and processes`
    throw unguarded(file, 'was not run', `can't be started: ${why}`)
  }
}
