// The action that adds jobs. It counts the jobs and then adds some, which two servers must not do
// at the same time.

import { data } from '@remix-run/node'
import { withRequestLock } from 'leasehold/remix'

/** Answers a request that can't have the lock with data, so that the page can show the error. */
const refuse = ({ status, retryAfter }) =>
  data(
    { error: `Another request is adding jobs, or the store does not answer. Try again in ${retryAfter} s.` },
    { status, headers: { 'Retry-After': String(retryAfter) } },
  )

async function add(_lease, { context, request }) {
  const count = Number((await request.formData()).get('count'))
  if (!Number.isInteger(count) || count < 1 || count > 100) {
    return data({ error: 'count must be a whole number from 1 to 100' }, { status: 400 })
  }
  try {
    await context.jobs.add(count)
  } catch (error) {
    if (error.name !== 'TooManyJobsError') throw error
    return data({ error: error.message }, { status: 409 })
  }
  return data({ added: count }, { status: 201 })
}

export const addJobs = (args) => {
  const { locks, addKey } = args.context
  const options = { key: () => addKey, wait: 2000, onBusy: refuse, onUnavailable: refuse }
  return withRequestLock(locks, options, add)(args)
}
