// The processes of this machine, as /proc shows them. Only Linux has it.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { runsIn } from './mark'

export interface ProcessStatus {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly session: number
  /** The time of its start, in clock ticks since the boot. A later process may have the same id. */
  readonly start: string
  /** Whether it is a zombie: dead, but not reaped by its parent. */
  readonly dead: boolean
}

export interface MarkedStatus extends ProcessStatus {
  /** The runs in its mark. `undefined` if it has no mark, or /proc does not show it. */
  readonly runs: readonly string[] | undefined
}

/** Returns the status of a process; `undefined` if it is gone or /proc does not show it. */
export function statusOf(pid: number): ProcessStatus | undefined {
  try {
    return parseStatus(pid, readFileSync(`/proc/${pid}/stat`, 'latin1'))
  } catch {
    return undefined
  }
}

/** Parses what /proc/PID/stat says. */
export function parseStatus(pid: number, text: string): ProcessStatus {
  // The process's name is in brackets, and may contain brackets.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [state, parent, group, session] = fields
  const [threads, start] = [Number(fields[17]), fields[19] ?? '']
  // If only its first thread has ended, a process looks like a zombie and still runs.
  const dead = (state === 'Z' || state === 'X') && threads <= 1
  return { pid, parent: Number(parent), group: Number(group), session: Number(session), start, dead }
}

/** Looks at all processes, again and again. */
export class ProcessTable {
  readonly #run: string
  #last = new Map<number, MarkedStatus>()

  /** `run` is the id of the run whose processes are looked for. */
  constructor(run: string) {
    this.#run = run
  }

  /** Returns all visible processes; `undefined` if /proc does not show those of this system. */
  look(): MarkedStatus[] | undefined {
    const all = pids()
      ?.map((pid) => this.#statusOf(pid))
      .filter((status) => status !== undefined)
    if (all !== undefined) this.#last = new Map(all.map((status) => [status.pid, status]))
    return all
  }

  #statusOf(pid: number): MarkedStatus | undefined {
    const status = statusOf(pid)
    if (status === undefined) return undefined
    const last = this.#last.get(pid)
    // Only what runs under a run can get its mark. To read each environment each time costs twice
    // as much as all the rest.
    const isKnown = last?.start === status.start && !last.runs?.includes(this.#run)
    return { ...status, runs: isKnown ? last.runs : runsOf(pid) }
  }
}

/** Returns whether /proc may hide the processes of other users. */
export function hidesProcesses(): boolean {
  try {
    return isHiding(readFileSync('/proc/self/mounts', 'utf8'))
  } catch {
    return false
  }
}

/** Returns whether `mounts`, as in /proc/self/mounts, has a /proc that hides processes. */
export function isHiding(mounts: string): boolean {
  const [, , , options = ''] = mounts
    .split('\n')
    .map((line) => line.split(' '))
    // The last one covers the others.
    .reduce((last, words) => (words[1] === '/proc' ? words : last), [])
  const hidepid = options.split(',').find((option) => option.startsWith('hidepid='))
  return hidepid !== undefined && !['hidepid=0', 'hidepid=off'].includes(hidepid)
}

function pids(): number[] | undefined {
  try {
    // It may be that of another namespace, in which a process has another id.
    if (readlinkSync('/proc/self') !== String(process.pid)) return undefined
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0)
  } catch {
    return undefined
  }
}

function runsOf(pid: number): readonly string[] | undefined {
  try {
    return runsIn(readFileSync(`/proc/${pid}/environ`, 'latin1'))
  } catch {
    // It is gone, or belongs to another user.
    return undefined
  }
}
