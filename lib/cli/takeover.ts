// What the process needs to know that takes the lock of a killed `leasehold run` over, and how that process is started.

import { join } from 'node:path'
import type * as api from '../../index'
import type { Ticket } from '../ticket'

/** It has secrets in it: the ticket, and the store's password. So it only goes through pipes. */
export interface Takeover {
  readonly options: api.LockClientOptions
  readonly ticket: Ticket
  /** From SIGTERM to SIGKILL, in ms. */
  readonly grace: number
  /** The process, or if it is negative the group, until whose end the lock is held. */
  readonly target: number
}

/** What the guard and the successor are told when the command has ended; no takeover looks like that. */
export const OVER = 'over'

/** Returns it as one line that any shell reads and prints unchanged. */
export function encodeTakeover(takeover: Takeover): string {
  return Buffer.from(JSON.stringify(takeover)).toString('base64url')
}

export function decodeTakeover(line: string): Takeover {
  return JSON.parse(Buffer.from(line, 'base64url').toString())
}

const SUCCESSOR = join(__dirname, 'successor.js')

/** The command line of the successor (successor.ts). */
export function successorCommand(): [string, ...string[]] {
  return process.versions.deno ? [process.execPath, 'run', '-A', SUCCESSOR] : [process.execPath, SUCCESSOR]
}
