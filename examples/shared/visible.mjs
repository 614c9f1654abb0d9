// What a visitor may see of an error. The messages of a store name servers, files and locks: they go to the log.

import { TooManyJobsError } from './jobs.mjs'

const TROUBLE = 'Something is wrong here. Please try again later.'

/** Returns what to answer: a status, and a text for the page. Logs errors that the visitor can do nothing about. */
export function visible(error) {
  if (error instanceof TooManyJobsError) return { status: 409, error: error.message }
  // Express and its body parsers mark the errors that are about the request.
  if (error?.expose === true && error.status < 500) return { status: error.status, error: error.message }
  console.error('Failed:', error)
  return { status: 503, error: TROUBLE }
}
