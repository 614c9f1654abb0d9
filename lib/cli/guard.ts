// The guard: if leasehold itself is killed (SIGKILL, out of memory), it ends the command and keeps
// the lock until the command has ended. It does the same if leasehold is stopped (SIGSTOP) until
// the lock is no longer safe.
//
// Linux has PR_SET_PDEATHSIG for that, but Node can't set it. So a shell reads from a pipe whose
// other end only this process has (stand-by.ts). The first line says which process to end, and the
// second line how to take the lock over (takeover.ts). A later line says until when the lock is
// safe after a renewal, or that the command has ended. The end of the file says that this process
// is gone. The command waits at a gate (gate.ts) until the shell has answered the second line. (A
// write that has ended is not enough: Bun reports the end before the line is written.) If the
// successor starts before the command, the successor answers, too.
//
// The shell itself ends the command, because a process that has yet to start could fail. The shell
// starts a second process, the successor (successor.ts), to renew and release the lock. Node takes
// a moment to start. If the lock could run out meanwhile, the successor starts before the command,
// reads from its own pipe and gets the same reports. The shell finds the processes of the command's
// session; the successor finds all.
//
// The guard can be killed, too. At the next renewal, `renewed` notices that the shell is gone, and
// starts another guard (`#restart`). Until then, no shell would end the command.

import type * as api from '../../index'
import type { CommandId } from './command-id'
import { SHELL } from './gate'
import { SCRIPT, uncheckedFor } from './guard-script'
import { StandBy } from './stand-by'
import { ASKED, encodeTakeover, successorCommand, type Takeover } from './takeover'
import { uptime } from './uptime'

/**
 * The ttl, in ms, below which the successor starts before the command. When leasehold is killed, at
 * least two thirds of the ttl are left. When leasehold is stopped (SIGSTOP), the guard notices it
 * at most 1 s before only a third is left. If SHORT_TTL is smaller, a busy machine starts the
 * successor so late that the guard kills the command first; if it is larger, more commands pay for
 * the successor's 50 MB of memory.
 */
const SHORT_TTL = 8_000

/**
 * The longest start of leasehold, as a part of the ttl, after which the successor starts only when
 * it is needed. After a longer start, the successor starts before the command. If leasehold is
 * killed just before it renews the lock, the lock is safe for another third of the ttl. A successor
 * that starts then takes about as long as leasehold to start, and at most as long again to adopt
 * the lock and to find the command's processes. If this is larger, processes in other sessions can
 * outlive the lock on a slow machine. If it is smaller, more commands pay for the successor's
 * memory.
 */
const LONG_START = 1 / 6

/**
 * Returns whether the successor starts before the command. `ttl` is the ttl of the lock, and
 * `startup` is the time that leasehold itself took to start; both are in ms.
 */
export function startsBefore(ttl: number, startup: number): boolean {
  return ttl < SHORT_TTL || startup > ttl * LONG_START
}

/**
 * How often to continue a guard or a successor that may be stopped while it starts, in ms. If this
 * is larger, the command waits longer for a process that was stopped.
 */
const CONTINUE_EVERY = 1_000

/** Describes a takeover before its command is started. */
export interface Held extends Omit<Takeover, 'command'> {
  /** How long leasehold took to start, in ms, without the wait for the lock. */
  readonly startup: number
}

export class Guard {
  readonly #held: Held
  readonly #lease: api.Lease
  #shell!: StandBy
  #successor: StandBy | undefined
  #command: CommandId | undefined
  #isAsked = false
  #isEnding = false
  #tellEnding = () => {}
  /**
   * Resolves when the guard ends the command because this process was stopped for too long. Never
   * resolves otherwise.
   */
  readonly ending = new Promise<void>((resolve) => {
    this.#tellEnding = resolve
  })

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
    this.#start()
  }

  #start(): void {
    const { ticket, grace, startup } = this.#held
    const [file, ...args] = successorCommand()
    const times = [Math.ceil(grace / 1_000), uncheckedFor(ticket.ttl)]
    const shown = [...times.map(String), workingFolder(), file, ...args]
    // In the root directory, so that the shell keeps no other directory in use.
    const shell = new StandBy(SHELL, ['-c', SCRIPT, 'leasehold-guard', ...shown], '/')
    try {
      const before = startsBefore(ticket.ttl, startup)
      this.#successor = before ? new StandBy(file, [...args, String(shell.pid)]) : undefined
    } catch (error) {
      shell.dismiss()
      throw error
    }
    this.#shell = shell
    shell.ending.then(() => {
      this.#isEnding = true
      this.#tellEnding()
    })
  }

  /**
   * Resolves with true once the guard is sure to watch over the command, and with false if the
   * guard ends before that. If the successor was started before the command, it has to be ready,
   * too.
   */
  async watch(command: CommandId): Promise<boolean> {
    this.#command = command
    const { options, ticket, grace } = this.#held
    const takeover = encodeTakeover({ options, ticket, grace, command })
    const safe = this.#safeUntil()
    const isReady = this.#successor?.begin(`${takeover} ${safe}\n`) ?? true
    const { pid, leads } = command
    const target = [leads ? -pid : pid, safe, this.#successor?.pid].join(' ')
    const answers = Promise.all([this.#shell.begin(`${target}\n${takeover}\n`), isReady])
    if (this.#isAsked) this.#tellAsked()
    const stopped = [this.#shell, this.#successor]
    // Until the guard watches, nobody else continues a stopped process.
    const timer = setInterval(() => {
      for (const each of stopped) each?.continue()
    }, CONTINUE_EVERY)
    try {
      return (await answers).every((answered) => answered)
    } finally {
      clearInterval(timer)
    }
  }

  /**
   * Reports a renewal of the lock to the shell and to the successor. If one of the two has ended
   * (it was killed, or had no room for a process), starts both again.
   */
  renewed(): void {
    if ((this.#shell.isGone || this.#successor?.isGone) && !this.#isEnding) this.#restart()
    else this.#report()
  }

  #restart(): void {
    // The command has yet to start, or is over: there is nothing to watch.
    if (this.#command === undefined) return
    // A successor tells its renewals to the shell that it was started for, so it needs a new one,
    // too. The old ones watch until the new ones do.
    const old = [this.#shell, this.#successor]
    try {
      this.#start()
    } catch {
      // Try again after the next renewal.
      return
    }
    this.watch(this.#command).then(() => {
      for (const each of old) each?.dismiss()
    })
  }

  #report(): void {
    const safe = this.#safeUntil()
    if (safe === 0) return
    this.#shell.report(this.#safeWords())
    this.#successor?.report(String(safe))
  }

  /**
   * Reports to the shell that this process asked the command to end, or passed on a signal that
   * does. Does not wait for the answer to the last report: this process may be stopped by then.
   */
  asked(): void {
    if (this.#isAsked) return
    this.#isAsked = true
    if (this.#command !== undefined) this.#tellAsked()
  }

  #tellAsked(): void {
    if (this.#safeUntil() > 0) this.#shell.urge(this.#safeWords())
  }

  #safeWords(): string {
    return this.#isAsked ? `${this.#safeUntil()} ${ASKED}` : String(this.#safeUntil())
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
    this.#command = undefined
    this.#successor?.dismiss()
    this.#shell.dismiss()
  }
}

/** Returns the directory that a store's relative path begins at. */
function workingFolder(): string {
  try {
    return process.cwd()
  } catch {
    // The directory was deleted.
    return '/'
  }
}
