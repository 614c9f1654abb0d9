// Prints messages without waiting for their reader. Node writes to terminals and pipes
// synchronously, and both can be full: Ctrl-S stops a terminal, and the reader of a pipe may be
// stopped, too. `leasehold run` could then neither kill its command nor keep its lock.

import { write } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * The pause before another try to write to a full pipe, in ms. Only a pipe that does not block
 * needs it: the process at the other end may have set this mode. If the pause is longer, messages
 * come later. If it is shorter, the tries take more processor time.
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

/** Writes `rest` to standard error. Resolves after an error, too: the rest is lost then. */
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
