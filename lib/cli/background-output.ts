// Prints messages without waiting for the terminal. Node writes to a terminal synchronously, and
// Ctrl-S stops a terminal. `leasehold run` could then neither kill its command nor keep its lock.

import { write } from 'node:fs'

/** Resolves when all texts that were given to the terminal so far are written. */
let written: Promise<void> = Promise.resolve()

/**
 * Prints `text` to standard error, after all texts before it. On a terminal, another thread writes
 * it.
 */
export function printInBackground(text: string): void {
  if (!process.stderr.isTTY) {
    process.stderr.write(text)
    return
  }
  written = written.then(() => new Promise((resolve) => write(process.stderr.fd, text, () => resolve())))
}

/** Resolves when the terminal has got all texts so far. */
export const printed = (): Promise<void> => written
