// An error as it is told: to people, or to programs as JSON.

import type * as api from '../../index'
import { QuorumError } from '../errors'

/** What programs are told of an error. */
interface Told {
  readonly code: string | null
  readonly message: string
  /** Of a quorum. */
  readonly votes?: readonly api.Vote[]
}

export function failureOf(error: unknown): Told {
  const { code, message } = Object(error) as { code?: unknown; message?: unknown }
  const told = { code: typeof code === 'string' ? code : null, message: String(message ?? error) }
  const votes = votesOf(error)
  return votes ? { ...told, votes } : told
}

/** Those of a quorum that failed, be it as the cause of what happened. */
function votesOf(error: unknown): readonly api.Vote[] | undefined {
  if (error instanceof QuorumError) return error.votes
  return error instanceof Error && error.cause !== undefined ? votesOf(error.cause) : undefined
}
