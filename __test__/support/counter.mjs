// An unprotected counter in a file. Without mutual exclusion, its log shows it.
//
// Each increment is one line "value fence process" at the end of a log, in one write; the value is
// that of the last line plus one. Without exclusion, two processes would read the same last line. A
// process that is killed has written its whole line or none of it.

import { closeSync, fstatSync, openSync, readFileSync, readSync, writeSync } from 'node:fs'

/**
 * Reads the last value. `write` writes the next one in a separate step, so that another process
 * could come between.
 */
export function readCounter(path) {
  const file = openSync(path, 'a+')
  const { size } = fstatSync(file)
  const tail = Buffer.alloc(Math.min(size, 256))
  readSync(file, tail, 0, tail.length, size - tail.length)
  const line = tail.toString().trimEnd().split('\n').pop()
  const value = line ? Number(line.split(' ')[0]) : 0
  return {
    write: (fence, who) => writeSync(file, `${value + 1} ${fence} ${who}\n`),
    close: () => closeSync(file),
  }
}

/** Returns all increments of a log, as { value, fence, who }. */
export const readLog = (path) =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const [value, fence, who] = line.split(' ')
      return { value: Number(value), fence: Number(fence), who }
    })
