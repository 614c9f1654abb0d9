// Reads the processes of this machine from /proc, which only Linux has in this form.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import type { CommandId } from './command-id'
import { runsIn } from './mark'

export interface ProcessStatus {
  readonly pid: number
  readonly parent: number
  readonly group: number
  readonly session: number
  /** When it started, in clock ticks since the boot: a later process may have the same id. */
  readonly start: string
  /** Whether it is a zombie: dead, but not reaped by its parent. */
  readonly dead: boolean
}

export interface MarkedStatus extends ProcessStatus {
  /** The runs in its mark; `undefined` if it has no mark, or if its mark can't be read. */
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

/**
 * Returns whether a process is stopped, by a signal or by a debugger; false if /proc does not show
 * it.
 */
export function isStopped(pid: number): boolean {
  try {
    const [state] = fieldsOf(readFileSync(`/proc/${pid}/stat`, 'latin1'))
    return state === 'T' || state === 't'
  } catch {
    return false
  }
}

/**
 * Returns true if a process has ended without a signal, and has not been reaped. Returns false if
 * /proc does not show it.
 */
export function hasExited(pid: number): boolean {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The last field is the status that wait(2) returns: see proc(5).
    const status = Number(fieldsOf(text)[49])
    return parseStatus(pid, text).dead && status % 128 === 0
  } catch {
    return false
  }
}

/** Parses the text of /proc/PID/stat. */
export function parseStatus(pid: number, text: string): ProcessStatus {
  const fields = fieldsOf(text)
  const [state, parent, group, session] = fields
  const [threads, start] = [Number(fields[17]), fields[19] ?? '']
  // If only its first thread has ended, a process looks like a zombie and still runs.
  const dead = (state === 'Z' || state === 'X') && threads <= 1
  return { pid, parent: Number(parent), group: Number(group), session: Number(session), start, dead }
}

function fieldsOf(text: string): string[] {
  // The process's name is in brackets, and may contain brackets.
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}

/** Searches all processes for those of a command, again and again. */
export class ProcessTable {
  readonly #command: CommandId
  readonly #progress: () => void
  #last = new Map<number, Reading>()
  /**
   * Whether the last look read the mark of each process that may belong to the command. A process
   * that ended before its mark was read may have started one that is not on the list.
   */
  isComplete = false

  /** Calls `progress` after each process that a look reads. */
  constructor(command: CommandId, progress: () => void = () => {}) {
    this.#command = command
    this.#progress = progress
  }

  /**
   * Returns all visible processes; `undefined` if there is no /proc, or it is that of another PID
   * namespace. Passes each running process with the command's mark to `found` as soon as its mark
   * is read.
   */
  look(found: (status: MarkedStatus) => void = () => {}): MarkedStatus[] | undefined {
    const readings = new Map<number, Reading>()
    this.isComplete = true
    const all = pids()
    // Read new processes first: some of them live for only a few ms.
    all?.sort((a, b) => Number(this.#last.has(a)) - Number(this.#last.has(b)) || b - a)
    for (const pid of all ?? []) {
      const reading = this.#read(pid)
      this.#progress()
      if (reading === undefined) continue
      readings.set(pid, reading)
      if (!reading.dead && reading.runs?.includes(this.#command.run)) found(reading)
    }
    this.#last = readings
    return all && [...readings.values()]
  }

  #read(pid: number): Reading | undefined {
    const last = this.#last.get(pid)
    const status = statusOf(pid)
    if (status === undefined) {
      if (last === undefined || !(last.dead || this.#isOlder(last))) this.isComplete = false
      return undefined
    }
    if (this.#isOlder(status)) return { ...status, runs: undefined, isRead: true }
    const before = last?.start === status.start ? last : undefined
    // A process outside the run never gets its mark, so its environment is read once. Reading all
    // environments at each look takes twice as long as everything else.
    const isOther = before?.isRead && !before.runs?.includes(this.#command.run)
    if (before?.dead || isOther) return { ...before, ...status }
    const environ = environOf(pid)
    // If an environment is empty at two looks, the process is a zombie, belongs to another user, or
    // has no variables.
    if (environ.length === 0 && (before === undefined || before.isRead)) this.isComplete = false
    return { ...status, runs: runsIn(environ), isRead: environ.length > 0 }
  }

  /** Returns whether a process is older than the command, so that it can't belong to it. */
  #isOlder({ start }: ProcessStatus): boolean {
    return Number(start) < Number(this.#command.start)
  }
}

/** What a look has read about a process. */
interface Reading extends MarkedStatus {
  /**
   * Whether its environment was read. A process has none while it ends, and for a moment in an
   * exec.
   */
  readonly isRead: boolean
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
    // The last mount at /proc covers the earlier ones.
    .reduce((last, words) => (words[1] === '/proc' ? words : last), [])
  const hidepid = options.split(',').find((option) => option.startsWith('hidepid='))
  return hidepid !== undefined && !['hidepid=0', 'hidepid=off'].includes(hidepid)
}

function pids(): number[] | undefined {
  try {
    // /proc may belong to another PID namespace, in which processes have other ids.
    if (readlinkSync('/proc/self') !== String(process.pid)) return undefined
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => pid > 0)
  } catch {
    return undefined
  }
}

/** Returns the environment of a process; an empty one if it is gone or belongs to another user. */
function environOf(pid: number): Buffer {
  try {
    return readFileSync(`/proc/${pid}/environ`)
  } catch {
    return Buffer.alloc(0)
  }
}
