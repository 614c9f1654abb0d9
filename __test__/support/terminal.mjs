// Runs `leasehold` on a terminal, where it asks, draws, and is interrupted by keys.

import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CLI, start } from './cli.mjs'
import { temporaryFolder } from './servers.mjs'

const SOURCE = fileURLToPath(new URL('pty.c', import.meta.url))

export const CTRL_C = '\u0003'
export const CTRL_D = '\u0004'
/** Continues the output of the terminal. */
export const CTRL_Q = '\u0011'
/** Stops the output of the terminal. */
export const CTRL_S = '\u0013'

/**
 * Starts `leasehold` with these words on a terminal of 20 rows and 70 columns. `stdout` has all
 * that the terminal shows, without colours unless `env` sets NO_COLOR to ''.
 */
export function onTerminal(t, words, env) {
  const pty = join(temporaryFolder(t), 'pty')
  // Older C libraries have forkpty() in a file of its own, libutil. Newer ones have that file, too.
  execFileSync('cc', ['-o', pty, SOURCE, '-lutil'])
  const run = start(t, pty, ['20', '70', process.execPath, CLI, ...words], { NO_COLOR: '1', ...env }, 'pipe')
  // Input after the end of the program is dropped.
  run.process.stdin.on('error', () => {})
  return Object.assign(run, { type: (text) => run.process.stdin.write(text) })
}
