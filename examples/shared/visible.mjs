// Decides what a visitor may see of an error. The messages of a store name servers, files and
// locks, so they go to the log only.

import { TooManyJobsError } from './jobs.mjs'

const TROUBLE = 'Something is wrong here. Please try again later.'

/** Returns a status and a text for the page. Logs the errors that the visitor can't correct. */
export function visible(error) {
  if (error instanceof TooManyJobsError) return { status: 409, error: error.message }
  // Express and its body parsers mark the errors that are about the request.
  if (error?.expose === true && error.status < 500) return { status: error.status, error: error.message }
  console.error('Failed:', error)
  return { status: 503, error: TROUBLE }
}
