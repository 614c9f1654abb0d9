// Defines the exit codes, and the errors that have one. The comments give the names of
// <sysexits.h>.

import {
  LockClosedError,
  LockLostError,
  LockTimeoutError,
  QuorumError,
  StoreUnavailableError,
} from '../diagnostics/errors'

export const Exit = {
  Ok: 0,
  /** The answer is no: the lock is free, or the store is not fit. */
  No: 1,
  /** The command line is wrong (EX_USAGE). */
  Usage: 64,
  /**
   * The store could not be reached or used, or there is no addon for this system (EX_UNAVAILABLE).
   */
  Unavailable: 69,
  /** The lease was lost while the command ran (EX_SOFTWARE). */
  Lost: 70,
  /** The guard could not be started, or ended before it watched the command (EX_OSERR). */
  System: 71,
  /** Another holder has the lock: try again later (EX_TEMPFAIL). */
  Busy: 75,
  /** The command exists and can't be run. Shells use the same code. */
  NotExecutable: 126,
  /** There is no such command. Shells use the same code. */
  NotFound: 127,
  /** Added to the number of the signal that ended the command, as shells do. */
  Signal: 128,
} as const

/** An error whose message needs no stack. */
export class CliError extends Error {
  readonly exit: number

  constructor(exit: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.exit = exit
  }
}

/** The command line is wrong. */
export class UsageError extends CliError {
  constructor(message: string) {
    super(Exit.Usage, message)
  }
}

/** Returns the exit code of an error; `undefined` for an unexpected error. */
export function exitOf(error: unknown): number | undefined {
  if (error instanceof CliError) return error.exit
  if (error instanceof LockTimeoutError) return Exit.Busy
  if (error instanceof StoreUnavailableError || error instanceof QuorumError) return Exit.Unavailable
  if (error instanceof LockLostError || error instanceof LockClosedError) return Exit.Lost
  const { code } = (error ?? {}) as { code?: unknown }
  if (code === 'ERR_LOCK_NO_ADDON') return Exit.Unavailable
  // The library refuses an argument, which came from the command line.
  const bad = ['ERR_INVALID_ARG_VALUE', 'ERR_INVALID_ARG_TYPE', 'ERR_OUT_OF_RANGE']
  return bad.includes(code as string) ? Exit.Usage : undefined
}
