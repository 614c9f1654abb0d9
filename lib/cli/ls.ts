// Lists the held locks.

import { MOST_LISTED } from '../client/client-options'
import { type Command, count, flag } from './command'
import { tableOf, tellable } from './describe'
import { Exit } from './exits'
import { refuseServer } from './shown-word'
import { STORE_OPTIONS, withClient } from './store'
import { paint, plain, say, sayJson, warn } from './terminal'

/**
 * The default --store-timeout of `ls` and `watch`, in ms. If this is smaller, they list fewer locks
 * of a big database. If it is larger, they wait longer for a store that does not answer.
 */
export const LIST_TIMEOUT = 10_000

export const ls: Command = {
  name: 'ls',
  synopsis: '[PATTERN] [options]',
  summary: 'list the locks that are held',
  details: `
Lists the locks with the prefix whose keys match PATTERN: the holders, the fence, when the lease ends unless
it is renewed, and how many clients wait. In PATTERN, * stands for any characters, ? stands for one, and
\\ takes the next character literally; quote it for your shell. What locks.once() and locks.schedule()
remember is listed only for a pattern that names it: '*@once:*'.

On Redis, this looks at every key of the database, a thousand at a time, and does not block the server; a
user with an ACL needs +scan. If there are more locks than --limit, or too many keys to look at in half of
--store-timeout (default 10s here), it says so, and "complete" is false in the JSON.`,
  examples: [
    'leasehold ls',
    "leasehold ls 'invoice:*'",
    "leasehold ls 'welcome-mail@once:*'",
    'leasehold ls --json | jq -r .locks[].key',
  ],
  options: {
    ...STORE_OPTIONS,
    limit: { type: 'string', value: 'N', help: 'list at most N locks: 1 to 10000. Default 1000' },
  },
  words: [0, 1],
  run: (given) => {
    refuseServer(given.words[0], given)
    return withClient(given, { storeTimeout: LIST_TIMEOUT }, async (locks) => {
      const [pattern = '*'] = given.words
      const list = await locks.list({ pattern, limit: count(given, 'limit', 1_000, 1, MOST_LISTED) })
      if (flag(given, 'json')) {
        sayJson({ ...list, locks: list.locks.map(tellable) })
        return Exit.Ok
      }
      // Show whole keys: other commands need them.
      say(list.locks.length === 0 ? paint('dim', 'no lock is held') : tableOf(list.locks, plain))
      if (!list.complete) warn('these are not all locks: raise --limit or --store-timeout, or narrow the pattern')
      return Exit.Ok
    })
  },
}
