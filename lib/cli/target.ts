// The processes of a command. The lock is free when all of them are gone. On Linux they are its
// members (members.ts), elsewhere its process group, or a single process if the command has no
// group of its own.
//
// The system notifies a process only of the end of its own children, so this polls.

import { setTimeout as sleep } from 'node:timers/promises'
import type { CommandId } from './command-id'
import { isLater, type Member, membersOf } from './members'
import { hidesProcesses, type ProcessStatus, ProcessTable, statusOf } from './process-table'

/**
 * The least and the most time between two looks, in ms. Between these bounds, a pause is {@link
 * REST} times as long as a look: with thousands of processes, a look takes long. If these are
 * larger, the lock is free later; if they are smaller, the wait takes more of a processor.
 */
const [LEAST, MOST] = [25, 200]
const REST = 4
/**
 * The time between two looks is at least this part of the time waited so far. If this is larger,
 * the lock is free later; if it is smaller, a long wait takes more of a processor.
 */
const LATER = 0.05
/**
 * The values of {@link LEAST} and {@link REST} while processes are being killed, which takes at
 * most 2 s. If these are larger, a chain of short processes is more likely to escape. If they are
 * smaller, killing takes more of a processor.
 */
const [KILL_LEAST, KILL_REST] = [2, 1]
/**
 * How many looks follow when the time for killing is over. On a machine with a high load, a killed
 * process may take that long to end. If this is larger, a process that can't be killed keeps the
 * lock for longer. If it is smaller, the lock may be free a few ms before the process is gone.
 */
const LATE_LOOKS = 3
/**
 * How many looks in a row may be incomplete before a target without visible members counts as gone.
 * If this is larger, a machine that starts very many short processes frees the lock later. If it is
 * smaller, a chain of short processes is more likely to outlive the lock. This bound does not apply
 * while processes are being killed, which has a time limit.
 */
const MOST_INCOMPLETE = 20

/** Watches over all processes of a command, signals them, and waits for their end. */
export class Target {
  readonly #command: CommandId
  readonly #table: ProcessTable
  /** All members that a look has found and that still exist. */
  #members: readonly Member[] = []
  /** All processes that the last look found; `undefined` without /proc. */
  #all: readonly ProcessStatus[] | undefined
  /** The number of incomplete looks in a row. */
  #incomplete = 0
  /** The processes with the mark that the look under way has found. */
  #found: ProcessStatus[] = []
  #isLate = false
  /** When the look under way began, in ms of `performance.now()`. */
  #lookedAt = 0

  /**
   * Calls `isLate` often during a look, which blocks the event loop. Its argument is how long the
   * look has taken so far, in ms. As soon as `isLate` returns true, kills the known processes, and
   * from then on each process as soon as the look finds it.
   */
  constructor(command: CommandId, isLate: (searched: number) => boolean = () => false) {
    this.#command = command
    this.#table = new ProcessTable(command, () => {
      if (this.#isLate || !isLate(performance.now() - this.#lookedAt)) return
      this.#isLate = true
      this.killKnown()
      for (const { pid } of this.#found) send(pid, 'SIGKILL')
    })
  }

  /**
   * Looks for all members, and returns those that run. A member stays one, even if its parent ends.
   * Passes each process with the mark to `found` as soon as it is found.
   */
  look(found?: (member: ProcessStatus) => void): readonly Member[] {
    this.#found = []
    this.#lookedAt = performance.now()
    const all = this.#table.look((status) => {
      this.#found.push(status)
      if (this.#isLate) send(status.pid, 'SIGKILL')
      found?.(status)
    })
    this.#all = all
    if (all !== undefined) this.#members = membersOf(all, this.#command, this.#members)
    return this.#members.filter((member) => !member.dead)
  }

  /** Returns whether any member runs, or may run. `found` is as for {@link look}. */
  isRunning(found?: (member: ProcessStatus) => void): boolean {
    // Look twice: the list of processes is no snapshot. While it is read, a member may start a
    // process that is not on the list, and end.
    const runs = this.look(found).length > 0 || this.look(found).length > 0
    this.#incomplete = runs || this.#table.isComplete ? 0 : this.#incomplete + 1
    const most = found ? Number.POSITIVE_INFINITY : MOST_INCOMPLETE
    if (runs || (this.#incomplete > 0 && this.#incomplete < most)) return true
    const { pid, leads } = this.#command
    const all = this.#all
    if (all === undefined) return answers(leads ? -pid : pid)
    const hides = hidesProcesses()
    if (!leads) return hides && statusOf(pid) === undefined && answers(pid)
    // Zombies answer, too. If /proc hides processes, the answer may come from a hidden one.
    return answers(-pid) && (hides || !all.some(({ group }) => group === pid))
  }

  /**
   * Waits until nothing of the target runs, for at most `limit` ms, and only while `waits` returns
   * true. Resolves with whether it is gone.
   */
  isGoneWithin(limit: number, waits: () => boolean = () => true): Promise<boolean> {
    return this.#gone(limit, false, waits)
  }

  /**
   * Kills all members, and those that they start meanwhile. Otherwise the same as
   * {@link isGoneWithin}.
   */
  isKilledWithin(limit: number): Promise<boolean> {
    return this.#gone(limit, true, () => true)
  }

  /** Sends SIGKILL to all members. */
  kill(): void {
    this.look()
    this.killKnown()
  }

  /**
   * Sends a signal to the command: to its process group, or, if it has none, to the one process.
   */
  signal(signal: NodeJS.Signals): void {
    const { pid, start, leads } = this.#command
    const status = statusOf(pid)
    if (isLater(status, this.#command)) return
    if (leads) send(-pid, signal)
    else if (start === undefined || status !== undefined) send(pid, signal)
  }

  /** Returns whether the command has a session of its own and the member is in it. */
  leadsSessionOf({ session }: Member): boolean {
    return this.#command.leads && session === this.#command.pid
  }

  /**
   * Sends SIGTERM to those of `members` that a signal to the command does not reach. `isReached`
   * says which others have got a signal already. Sends SIGCONT to all of them. Leaves out the
   * command of a nested leasehold, which passes the signal on.
   */
  endOthers(members: readonly Member[], isReached: (member: Member) => boolean = () => false): void {
    const { pid, leads } = this.#command
    for (const member of members) {
      if (member.nested) continue
      const reached = member.pid === pid || (leads && member.group === pid) || isReached(member)
      if (!reached) signalMember(member, 'SIGTERM')
      // A stopped process handles the signal only when it continues.
      signalMember(member, 'SIGCONT')
    }
  }

  /** Sends SIGKILL to the command and to the members that the last look has found. */
  killKnown(): void {
    this.signal('SIGKILL')
    for (const group of this.#groups()) send(-group, 'SIGKILL')
    for (const member of this.#members) if (!member.dead) signalMember(member, 'SIGKILL')
  }

  /**
   * Returns the process groups that consist of members only, as far as /proc shows them. A signal
   * to a group reaches all its processes at once, so that none can start another one meanwhile.
   */
  #groups(): ReadonlySet<number> {
    const members = new Set(this.#members.map(({ pid }) => pid))
    const groups = new Set(this.#members.filter(({ dead }) => !dead).map(({ group }) => group))
    for (const { pid, group } of this.#all ?? []) if (!members.has(pid)) groups.delete(group)
    // /proc shows 0 for a group of another PID namespace. A signal to 0 would reach our own group,
    // and one to -1 all processes.
    for (const group of groups) if (group <= 1) groups.delete(group)
    return groups
  }

  async #gone(limit: number, kills: boolean, waits: () => boolean): Promise<boolean> {
    const begin = performance.now()
    const end = begin + limit
    // Kill while looking: a process that lives for only a few ms is gone when the look is over.
    const found = kills ? ({ pid }: ProcessStatus) => send(pid, 'SIGKILL') : undefined
    const [least, rest, looks] = kills ? [KILL_LEAST, KILL_REST, LATE_LOOKS] : [LEAST, REST, 0]
    for (let late = 0; ; ) {
      const start = performance.now()
      if (!this.isRunning(found)) return true
      if (kills) this.killKnown()
      const now = performance.now()
      if ((now >= end && ++late > looks) || !waits()) return false
      const since = kills ? 0 : LATER * (now - begin)
      const pause = Math.min(Math.max(least, rest * (now - start), since), MOST)
      await sleep(now < end ? Math.min(pause, end - now) : pause)
    }
  }
}

function signalMember({ pid, start }: Member, signal: NodeJS.Signals): void {
  // Another process may have the id by now.
  if (statusOf(pid)?.start === start) send(pid, signal)
}

/** Returns whether a signal would reach the process or, if the number is negative, its group. */
function answers(target: number): boolean {
  try {
    process.kill(target, 0)
    return true
  } catch (error) {
    // The process exists, but belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function send(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal)
  } catch {
    // The process is gone, or belongs to another user.
  }
}
