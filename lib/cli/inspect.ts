// Shows one lock.

import { type Command, flag } from './command'
import { detailsOf, tellable } from './describe'
import { Exit } from './exits'
import { STORE_OPTIONS, withClient } from './store'
import { quoted, say, sayJson } from './terminal'

export const inspect: Command = {
  name: 'inspect',
  synopsis: 'KEY [options]',
  summary: 'show who holds a lock, and who waits for it',
  details: `
Exit code 0 if the lock is held, 1 if it is free.`,
  examples: ['leasehold inspect nightly', 'leasehold inspect nightly --json | jq .fence'],
  options: STORE_OPTIONS,
  words: [1, 1],
  run: (given) =>
    withClient(given, {}, async (locks) => {
      const key = given.words[0] as string
      const info = await locks.inspect(key)
      if (flag(given, 'json')) sayJson({ key, held: info !== null, ...(info && tellable(info)) })
      else say(info === null ? `${quoted(key)} is free` : detailsOf(key, info))
      return info === null ? Exit.No : Exit.Ok
    }),
}
