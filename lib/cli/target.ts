// Whether a process, or any process of a group, still runs: of those that are no children of ours nothing tells us that they end.

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

/** Resolves when the target does not run any more, or after `limit` ms: with whether it is gone. */
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
 * Returns whether all that a signal reaches is dead, and only waits for a parent to look. In a container whose first process
 * looks after nobody, an orphan stays like that for ever.
 */
function isDead(target: number): boolean {
  const leader = statusOf(Math.abs(target))
  if (target > 0) return leader?.dead === true
  if (leader?.dead === false) return false
  const all = processes()
  return (
    all?.every((pid) => {
      const status = statusOf(pid)
      return status === undefined || status.dead || status.group !== -target
    }) === true
  )
}

/** Returns the number of each process that we may see; `undefined` if there is no telling. */
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
    // Its name is in brackets, and may have brackets in it.
    const [state, , group] = text.slice(text.lastIndexOf(')') + 2).split(' ')
    return { dead: state === 'Z' || state === 'X', group: Number(group) }
  } catch {
    return undefined
  }
}
