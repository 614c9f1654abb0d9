// The action that adds jobs. It looks how many there are and then adds, which two servers must not do at once.

import { data } from '@remix-run/node'
import { withRequestLock } from 'leasehold/remix'

/** Also said by a request that can't have the lock: as data, so that the page can show it where it is. */
const refuse = ({ status, retryAfter }) =>
  data(
    { error: `Somebody else is adding jobs, or nobody can tell. Try again in ${retryAfter} s.` },
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
