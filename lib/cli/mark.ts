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
export function runsIn(environ: string): readonly string[] | undefined {
  const found = environ.split('\0').find((line) => line.startsWith(`${MARK}=`))
  return found
    ?.slice(MARK.length + 1)
    .split(' ')
    .filter(Boolean)
}
