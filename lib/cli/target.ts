// What has to be gone before the lock is free: all processes of a command. On Linux these are its
// members (members.ts), elsewhere its process group, or the one process if it has no group of its
// own.
//
// The system notifies a process only of the end of its own children, so this polls.

import { setTimeout as sleep } from 'node:timers/promises'
import { type CommandId, type Member, membersOf } from './members'
import { hidesProcesses, type ProcessStatus, ProcessTable, statusOf } from './process-table'

/**
 * The time between two looks, in ms. It is {@link REST} times as long as a look, within these bounds:
 * a machine with thousands of processes has to spend its time otherwise. If these are larger, the
 * lock is free later; if they are smaller, the wait takes more of a processor.
 */
const [LEAST, MOST] = [25, 200]
const REST = 4
/**
 * The time between two looks is at least this part of the time waited so far. If this is larger, the
 * lock is free later; if it is smaller, a long wait takes more of a processor.
 */
const LATER = 0.05
/** {@link LEAST} and {@link REST} while it kills, for 2 s at most: each look may meet a chain of short processes. */
const [KILL_LEAST, KILL_REST] = [2, 1]
/**
 * How many looks in a row may be incomplete before a target without visible members counts as gone.
 * If this is larger, a machine that starts very many short processes frees the lock later. If it is
 * smaller, a chain of short processes is more likely to outlive the lock. There is no such bound
 * while it kills: that has a limit of its own.
 */
const MOST_INCOMPLETE = 20

export class Target {
  readonly #command: CommandId
  readonly #table: ProcessTable
  /** All that were seen, as long as they are there. */
  #members: readonly Member[] = []
  /** What the last look found; `undefined` without /proc. */
  #all: readonly ProcessStatus[] | undefined
  /** The number of incomplete looks in a row. */
  #incomplete = 0

  constructor(command: CommandId) {
    this.#command = command
    this.#table = new ProcessTable(command)
  }

  /**
   * Looks for all members. From here on they stay members, also without their parent. Passes those
   * with the mark to `found` while it looks.
   */
  look(found?: (member: ProcessStatus) => void): readonly Member[] {
    const all = this.#table.look(found)
    this.#all = all
    if (all !== undefined) this.#members = membersOf(all, this.#command, this.#members)
    return this.#members.filter((member) => !member.dead)
  }

  /** Returns whether any member runs, or may run. `found` is as for {@link look}. */
  isRunning(found?: (member: ProcessStatus) => void): boolean {
    // The list of processes is no snapshot: while it is read, a member that it contains may start
    // one that it does not, and end.
    const runs = this.look(found).length > 0 || this.look(found).length > 0
    this.#incomplete = runs || this.#table.isComplete ? 0 : this.#incomplete + 1
    const most = found ? Number.POSITIVE_INFINITY : MOST_INCOMPLETE
    if (runs || (this.#incomplete > 0 && this.#incomplete < most)) return true
    const { pid, leads } = this.#command
    const all = this.#all
    if (all === undefined) return answers(leads ? -pid : pid)
    const hides = hidesProcesses()
    if (!leads) return hides && statusOf(pid) === undefined && answers(pid)
    // Zombies answer, too. If /proc hides processes, nobody knows whether anything else does.
    return answers(-pid) && (hides || !all.some(({ group }) => group === pid))
  }

  /**
   * Waits until nothing of the target runs, for at most `limit` ms. Resolves with whether it is gone.
   */
  isGoneWithin(limit: number): Promise<boolean> {
    return this.#gone(limit, false)
  }

  /** The same, and kills what runs, and what that starts meanwhile. */
  isKilledWithin(limit: number): Promise<boolean> {
    return this.#gone(limit, true)
  }

  /** Kills all of it (SIGKILL). */
  kill(): void {
    this.look()
    this.#killMembers()
  }

  /** Sends a signal to the command: to its process group, or, if it has none, to the one process. */
  signal(signal: NodeJS.Signals): void {
    const { pid, start, leads } = this.#command
    if (leads) send(-pid, signal)
    else if (start === undefined || statusOf(pid)?.start === start) send(pid, signal)
  }

  /** Returns whether the member is in the session that the command was given, if it was given one. */
  leadsSessionOf({ session }: Member): boolean {
    return this.#command.leads && session === this.#command.pid
  }

  /**
   * Asks those of `members` to end that a signal to the command does not reach, where `isReached`
   * tells of more. A nested leasehold asks its own.
   */
  endOthers(members: readonly Member[], isReached: (member: Member) => boolean = () => false): void {
    const { pid, leads } = this.#command
    for (const member of members) {
      if (member.nested) continue
      const reached = member.pid === pid || (leads && member.group === pid) || isReached(member)
      if (!reached) signalMember(member, 'SIGTERM')
      // One that is stopped takes its signal only when it goes on.
      signalMember(member, 'SIGCONT')
    }
  }

  #killMembers(): void {
    this.signal('SIGKILL')
    for (const group of this.#groups()) send(-group, 'SIGKILL')
    for (const member of this.#members) if (!member.dead) signalMember(member, 'SIGKILL')
  }

  /**
   * Returns the process groups of which all visible processes are members. The system signals a
   * group at once, so that none of it can start another process meanwhile.
   */
  #groups(): ReadonlySet<number> {
    const members = new Set(this.#members.map(({ pid }) => pid))
    const groups = new Set(this.#members.filter(({ dead }) => !dead).map(({ group }) => group))
    for (const { pid, group } of this.#all ?? []) if (!members.has(pid)) groups.delete(group)
    // A group of another namespace is shown as 0. To send to 0 or -1 would reach our own, or all.
    for (const group of groups) if (group <= 1) groups.delete(group)
    return groups
  }

  async #gone(limit: number, kills: boolean): Promise<boolean> {
    const begin = performance.now()
    const end = begin + limit
    // At once: a process that lives for a few ms is gone when the look is over.
    const found = kills ? ({ pid }: ProcessStatus) => send(pid, 'SIGKILL') : undefined
    const [least, rest] = kills ? [KILL_LEAST, KILL_REST] : [LEAST, REST]
    for (;;) {
      const start = performance.now()
      if (!this.isRunning(found)) return true
      if (kills) this.#killMembers()
      const now = performance.now()
      if (now >= end) return false
      const since = kills ? 0 : LATER * (now - begin)
      await sleep(Math.min(Math.max(least, rest * (now - start), since), MOST, end - now))
    }
  }
}

function signalMember({ pid, start }: Member, signal: NodeJS.Signals): void {
  // By now, another process may have its id.
  if (statusOf(pid)?.start === start) send(pid, signal)
}

/** Returns whether a signal would reach the process or, if the number is negative, its group. */
function answers(target: number): boolean {
  try {
    process.kill(target, 0)
    return true
  } catch (error) {
    // It may belong to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function send(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal)
  } catch {
    // It is gone, or belongs to another user.
  }
}
