// Finds the processes that belong to the command of a `leasehold run` in a list of all processes.

import type { CommandId } from './command-id'
import type { MarkedStatus, ProcessStatus } from './process-table'

export interface Member extends MarkedStatus {
  /**
   * Whether it belongs to the command of a nested `leasehold run`, which passes SIGTERM on to it.
   */
  readonly nested: boolean
}

/**
 * Returns the members among `all`, zombies included. A process is a member if its mark has the run,
 * and is no member if its mark is empty. With any other mark, or without one, it is a member if it
 * is
 * - the command itself,
 * - a child of a member,
 * - in the command's session,
 * - or one of `known`, the members of an earlier look.
 */
export function membersOf(all: readonly MarkedStatus[], command: CommandId, known: readonly Member[]): Member[] {
  const byPid = new Map(all.map((status) => [status.pid, status]))
  const before = new Map(known.map((member) => [member.pid, member]))
  const members = new Map<number, Member | undefined>()
  const hasSession = command.leads && !isLater(byPid.get(command.pid), command)

  /** Returns whether a member is nested; `undefined` if the process is no member. */
  const isNested = (status: MarkedStatus): boolean | undefined => {
    const { pid, start, runs = [] } = status
    if (status.runs?.length === 0) return undefined
    const nested = runs.length > 0 && runs.at(-1) !== command.run
    if (runs.includes(command.run) || (pid === command.pid && start === command.start)) return nested
    const parent = byPid.get(status.parent)
    // A parent that is not on the list has ended after the child was read.
    const above = parent ? memberOf(parent) : before.get(status.parent)
    if (above !== undefined) return nested || above.nested
    const earlier = before.get(pid)
    if (earlier?.start === start) return nested || earlier.nested
    return hasSession && status.session === command.pid ? nested : undefined
  }
  const memberOf = (status: MarkedStatus): Member | undefined => {
    if (members.has(status.pid)) return members.get(status.pid)
    // The list is no snapshot: it may say that two processes are the parents of each other.
    members.set(status.pid, undefined)
    const nested = isNested(status)
    const member = nested === undefined ? undefined : { ...status, nested }
    members.set(status.pid, member)
    return member
  }
  return all.map(memberOf).filter((member) => member !== undefined)
}

/**
 * Returns whether `status`, that of the process with the command's id, belongs to a later process.
 * Then nothing of the command's session and group is left: the system gives an id to a new process
 * only when no session and no group has it.
 */
export function isLater(status: ProcessStatus | undefined, { start }: CommandId): boolean {
  return status !== undefined && start !== undefined && status.start !== start
}
