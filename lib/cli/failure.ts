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
  return error instanceof QuorumError ? { ...told, votes: error.votes } : told
}

/** One line; of a quorum one more for each server that could not be used. */
export function wordsOf(error: unknown): string {
  const { message, votes = [] } = failureOf(error)
  return [message, ...votes.flatMap((vote) => vote.message ?? [])].join('\n  ')
}
