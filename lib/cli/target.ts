// Finds out whether a process, or any process of a group, still runs. The system notifies a process
// only of the end of its own children, so this polls.

import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const POLL = 25

/** Returns whether the process `target` runs or, if it is negative, a process of that group. */
export function isRunning(target: number): boolean {
  try {
    process.kill(target, 0)
  } catch (error) {
    // It may belong to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
  return process.platform !== 'linux' || !isDead(target)
}

/**
 * Waits until the target has stopped running, for at most `limit` ms. Resolves with whether it is
 * gone.
 */
export async function isGoneWithin(target: number, limit: number): Promise<boolean> {
  const end = performance.now() + limit
  while (isRunning(target)) {
    const left = end - performance.now()
    if (left <= 0) return false
    await sleep(Math.min(POLL, left))
  }
  return true
}

export function kill(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal)
  } catch {
    // It is gone.
  }
}

/**
 * Returns whether each process that a signal reaches is a zombie: dead, but not reaped by its
 * parent. In a container whose first process reaps no children, an orphan stays a zombie for ever.
 */
function isDead(target: number): boolean {
  const leader = statusOf(Math.abs(target))
  if (target > 0) return leader?.dead === true
  if (leader?.dead === false) return false
  const members = processes()
    ?.map(statusOf)
    .filter((status) => status?.group === -target)
  // If /proc hides the processes of other users, the group looks empty.
  return members !== undefined && members.length > 0 && members.every((status) => status?.dead)
}

/** Returns the ids of all visible processes; `undefined` if /proc can't be read. */
function processes(): number[] | undefined {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0)
  } catch {
    return undefined
  }
}

function statusOf(pid: number): { dead: boolean; group: number } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The process's name is in brackets, and may contain brackets.
    const [state, , group] = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { dead: state === 'Z' || state === 'X', group: Number(group) }
  } catch {
    return undefined
  }
}
