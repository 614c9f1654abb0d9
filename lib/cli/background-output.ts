// Prints messages without waiting for who reads them. Node writes to terminals and pipes
// synchronously, and both can be full: Ctrl-S stops a terminal, and the reader of a pipe may be
// stopped, too. `leasehold run` could then neither kill its command nor keep its lock.

import { write } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * How long to wait before a full pipe is tried again, in ms. Only pipes that do not block need it.
 * The process at the other end may have set that.
 */
const FULL_PAUSE = 50

/** Resolves when all texts so far are written. */
let written: Promise<void> = Promise.resolve()

/** Prints `text` to standard error, after all texts before it. Another thread writes it. */
export function printInBackground(text: string): void {
  written = written.then(() => writeAll(Buffer.from(text)))
}

/** Resolves when all texts so far are written. */
export const printed = (): Promise<void> => written

/** Writes to standard error. Resolves after an error, too: nobody reads it then. */
async function writeAll(rest: Buffer): Promise<void> {
  while (rest.length > 0) {
    const [error, count] = await new Promise<[NodeJS.ErrnoException | null, number]>((resolve) =>
      write(process.stderr.fd, rest, (...result) => resolve([result[0], result[1]])),
    )
    if (error?.code === 'EAGAIN') await sleep(FULL_PAUSE)
    else if (error) return
    else rest = rest.subarray(count)
  }
}
