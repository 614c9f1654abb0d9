// Which locks are held.

import { MOST_LISTED } from '../options'
import { type Command, count, flag } from './command'
import { tableOf, tellable } from './describe'
import { Exit } from './exits'
import { STORE_OPTIONS, withClient } from './store'
import { paint, say, sayJson, warn } from './terminal'

/** To look at all keys of a big database takes longer than to ask for one. */
export const LIST_TIMEOUT = 10_000

export const ls: Command = {
  name: 'ls',
  synopsis: '[PATTERN] [options]',
  summary: 'list the locks that are held',
  details: `
Lists the locks below the prefix whose keys are like PATTERN, with who holds them, the fence, when the
lease ends unless it is renewed, and how many wait. In PATTERN * stands for any characters, ? for one,
and \\ takes the next one to the letter; quote it for your shell. What locks.once() and locks.schedule()
remember is listed for a pattern that says so: '*@once:*'.

On Redis this looks at every key of the database, a thousand at a time, and never blocks the server; the
user of an ACL needs +scan for it. If there are more locks than --limit, or too many keys to look at
within half of --store-timeout (10s here), it says so, and "complete" is false in the JSON.`,
  examples: [
    'leasehold ls',
    "leasehold ls 'invoice:*'",
    "leasehold ls 'welcome-mail@once:*'",
    'leasehold ls --json | jq -r .locks[].key',
  ],
  options: {
    ...STORE_OPTIONS,
    limit: { type: 'string', value: 'N', help: 'how many locks at most: 1 to 10000. Default 1000' },
  },
  words: [0, 1],
  run: (given) =>
    withClient(given, { storeTimeout: LIST_TIMEOUT }, async (locks) => {
      const [pattern = '*'] = given.words
      const list = await locks.list({ pattern, limit: count(given, 'limit', 1_000, 1, MOST_LISTED) })
      if (flag(given, 'json')) {
        sayJson({ ...list, locks: list.locks.map(tellable) })
        return Exit.Ok
      }
      say(list.locks.length === 0 ? paint('dim', 'no lock is held') : tableOf(list.locks))
      if (!list.complete) warn('these are not all: raise --limit, or --store-timeout, or narrow the pattern')
      return Exit.Ok
    }),
}
