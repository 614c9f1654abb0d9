// The mark: an environment variable that a command and all processes that it starts inherit.
// leasehold finds them by the mark in any process group and session. The mark holds the id of each
// `leasehold run` that the process runs under, the outermost first.

import { randomUUID } from 'node:crypto'

export const MARK = 'LEASEHOLD_RUN'

/** Variables for a process that belongs to no command, even if a member of a command starts it. */
export const UNMARKED: Readonly<Record<string, string>> = { [MARK]: '' }

/** Returns the id of a new run, and the mark of its command. */
export function newMark(outer: string | undefined): { run: string; mark: string } {
  const run = randomUUID()
  return { run, mark: outer ? `${outer} ${run}` : run }
}

/**
 * Returns the ids in the mark of an environment, as /proc/PID/environ shows it: none if the mark is
 * empty, and `undefined` if there is no mark.
 */
export function runsIn(environ: Buffer): readonly string[] | undefined {
  const start = startOfMark(environ)
  if (start === -1) return undefined
  const end = environ.indexOf(0, start)
  // Decode only the mark: a part of a decoded environment would keep all of it in memory, which may
  // be megabytes.
  const mark = environ.toString('latin1', start, end === -1 ? environ.length : end)
  return mark.split(' ').filter(Boolean)
}

/** Returns where the value of the mark begins; -1 if there is no mark. */
function startOfMark(environ: Buffer): number {
  const [first, other] = [`${MARK}=`, `\0${MARK}=`]
  if (environ.toString('latin1', 0, first.length) === first) return first.length
  const found = environ.indexOf(other, 0, 'latin1')
  return found === -1 ? -1 : found + other.length
}
