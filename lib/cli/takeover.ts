// What leasehold and its guard tell each other, line by line.

import type * as api from '../../index'
import type { Ticket } from '../lock/ticket'
import type { CommandId } from './command-id'

// The options of the client and the takeover have secrets, the store's password and the ticket, so
// they only go through pipes.

/** What the guard needs to take over the lock of a killed `leasehold run`. */
export interface Takeover {
  readonly ticket: Ticket
  /** The time from SIGTERM to SIGKILL, in ms. */
  readonly grace: number
  /** The command whose end frees the lock. */
  readonly command: CommandId
}

/**
 * The last line to the guard: its work is over, because the lock was released or the command was
 * not started. No encoded value is equal to it.
 */
export const OVER = 'over'

/** The line that tells the guard that the command is gone. Its lock still has to be released. */
export const GONE_COMMAND = 'gone'

/** The line that the guard prints when it ends the command because leasehold was stopped. */
export const ENDING = 'ending'

/** Says until when the lock is safe, and whether the command may end because it was asked to. */
export interface Report {
  /**
   * Until when the lock is safe, in ms since the boot: a third of its ttl is left then. `undefined`
   * without /proc.
   */
  readonly safe: number | undefined
  /** Whether leasehold, or a signal that it passed on, has asked the command to end. */
  readonly isAsked: boolean
}

export const encodeReport = ({ safe, isAsked }: Report): string => `${safe ?? '?'} ${isAsked ? 'asked' : 'runs'}`

export function decodeReport(line: string): Report {
  const [safe, state] = line.split(' ')
  return { safe: safe === '?' ? undefined : Number(safe), isAsked: state === 'asked' }
}

/** Encodes a takeover, or the options of the client that can take the lock over, as one word. */
export function encode(value: Takeover | api.LockClientOptions): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

/** Decodes what {@link encode} returned. */
export function decode<Value extends Takeover | api.LockClientOptions>(word: string): Value {
  return JSON.parse(Buffer.from(word, 'base64url').toString())
}
