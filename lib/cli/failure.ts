// Describes errors: for people, or for programs as JSON.

import type * as api from '../../index'
import { QuorumError } from '../diagnostics/errors'

/** The description of an error. */
interface ErrorDescription {
  readonly code: string | null
  readonly message: string
  /** The votes of the nodes, if the store is a quorum. */
  readonly votes?: readonly api.Vote[]
}

export function failureOf(error: unknown): ErrorDescription {
  const { code, message } = Object(error) as { code?: unknown; message?: unknown }
  const isAboutArgument = typeof code === 'string' && /^ERR_(INVALID_ARG|OUT_OF_RANGE)/.test(code)
  // Remove the name of the function that nameCall() in lib/util/arguments.ts puts first: the user
  // has called no function.
  const words = String(message ?? error).replace(isAboutArgument ? /^\w+\(\): / : '', '')
  const told = { code: typeof code === 'string' ? code : null, message: words }
  const votes = votesOf(error)
  return votes ? { ...told, votes } : told
}

/** Returns the votes of a failed quorum. The failure may be the cause of the error. */
function votesOf(error: unknown): readonly api.Vote[] | undefined {
  if (error instanceof QuorumError) return error.votes
  return error instanceof Error && error.cause !== undefined ? votesOf(error.cause) : undefined
}
