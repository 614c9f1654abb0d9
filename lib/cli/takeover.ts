// What the successor needs to take over the lock of a killed `leasehold run`, and how the successor
// is started.

import { join } from 'node:path'
import type * as api from '../../index'
import type { Ticket } from '../lock/ticket'
import type { CommandId } from './command-id'

/** Has secrets, the ticket and the store's password, so a takeover only goes through pipes. */
export interface Takeover {
  readonly options: api.LockClientOptions
  readonly ticket: Ticket
  /** The time from SIGTERM to SIGKILL, in ms. */
  readonly grace: number
  /** The command whose end frees the lock. */
  readonly command: CommandId
}

/**
 * The line that tells the guard and the successor that the command has ended. No encoded takeover
 * is equal to it.
 */
export const OVER = 'over'

/** The line that the guard prints when it ends the command because leasehold was stopped. */
export const ENDING = 'ending'

/**
 * Follows the time in a report to the guard after leasehold or a signal has asked the command to
 * end.
 */
export const ASKED = 'asked'

/** Encodes a takeover as one line that any shell reads and prints unchanged. */
export function encodeTakeover(takeover: Takeover): string {
  return Buffer.from(JSON.stringify(takeover)).toString('base64url')
}

export function decodeTakeover(line: string): Takeover {
  return JSON.parse(Buffer.from(line, 'base64url').toString())
}

const SUCCESSOR = join(__dirname, 'successor.js')

/** Returns the command line of the successor (successor.ts). */
export function successorCommand(): [string, ...string[]] {
  return process.versions.deno ? [process.execPath, 'run', '-A', SUCCESSOR] : [process.execPath, SUCCESSOR]
}
