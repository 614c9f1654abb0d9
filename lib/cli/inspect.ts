// Shows one lock.

import { type Command, flag } from './command'
import { absenceOf, detailsOf, tellable } from './describe'
import { Exit } from './exits'
import { keyOf } from './shown-word'
import { STORE_OPTIONS, withClient } from './store'
import { say, sayJson } from './terminal'

export const inspect: Command = {
  name: 'inspect',
  synopsis: 'KEY [options]',
  summary: 'show who holds a lock, and who waits for it',
  details: `
Exit code 0 if the lock is held, 1 if it is free.

The key of an id of locks.once() is KEY@once:ID. The key of a tick of locks.schedule() is NAME@once:MS, in ms
since 1970. For these keys, inspect shows which process did the work, and for how much longer the store
remembers that. The exit code is 1 if the store does not remember it.`,
  examples: ['leasehold inspect nightly', 'leasehold inspect nightly --json | jq .fence'],
  options: STORE_OPTIONS,
  words: [1, 1],
  run: (given) =>
    withClient(given, {}, async (locks) => {
      const key = keyOf(given.words[0], given)
      const info = await locks.inspect(key)
      if (flag(given, 'json')) sayJson({ key, held: info !== null, ...(info && tellable(info)) })
      else say(info === null ? absenceOf(key) : detailsOf(key, info))
      return info === null ? Exit.No : Exit.Ok
    }),
}
