// Takes a lock away from its holder.

import { once } from 'node:events'
import { createInterface } from 'node:readline/promises'
import type * as api from '../../index'
import { isOnceKey } from '../lock/once-key'
import { type Command, flag } from './command'
import { absenceOf, detailsOf, isRemembered } from './describe'
import { CliError, Exit, UsageError } from './exits'
import { keyOf } from './shown-word'
import { STORE_OPTIONS, withClient } from './store'
import { paint, quoted, say, sayJson, shownName } from './terminal'

export const release: Command = {
  name: 'release',
  synopsis: 'KEY --force [options]',
  summary: 'take a lock away from its holder',
  details: `
Ends every lease of the lock, and hands the lock to the next waiter. Use it if a holder hangs and you know
that it does no harm: THIS BREAKS WHAT A LOCK PROMISES. The holder is not asked. It finds out at its next
renewal, up to a third of its ttl later, and may work at the same time as the next holder until then. Only
storage that checks the fence refuses its writes at once.

Shows the holders, and asks you first. Without a terminal, it needs --yes. If the lock has another holder
when you answer, it changes nothing (exit code 75). Exit code 1: the lock is free, or your answer is no, which
Ctrl-C and Ctrl-D mean, too.`,
  examples: ['leasehold release nightly --force', 'leasehold release nightly --force --yes --json'],
  options: {
    ...STORE_OPTIONS,
    force: { type: 'boolean', help: 'required: a lock that is not ours can only be released by force' },
    yes: { type: 'boolean', short: 'y', help: 'do not ask' },
  },
  words: [1, 1],
  run: (given) => {
    const key = keyOf(given.words[0], given)
    const json = flag(given, 'json')
    if (!flag(given, 'force')) {
      throw new UsageError(
        `did not release ${quoted(key)}: if it is held, its holder does that; if the holder hangs: leasehold release ${shownName(key)} --force`,
      )
    }
    const isAsked = !flag(given, 'yes')
    if (isAsked && (json || !process.stdin.isTTY || !process.stderr.isTTY)) {
      throw new UsageError('there is no terminal to ask on: add --yes if you are sure')
    }
    return withClient(given, {}, async (locks) => {
      const info = await locks.inspect(key)
      if (info === null) {
        if (json) sayJson({ key, released: false })
        else say(isOnceKey(key) ? absenceOf(key) : `${absenceOf(key)} already`)
        return Exit.No
      }
      if (!json) process.stderr.write(`${detailsOf(key, info)}\n`)
      if (isAsked && !(await isSure())) {
        say('nothing was done')
        return Exit.No
      }
      // The lock may have a new holder by now, which the user has not seen.
      const now = await locks.inspect(key)
      const fences = (leases: typeof info.leases = []) => leases.map(({ fence }) => fence).join()
      if (now !== null && fences(now.leases) !== fences(info.leases)) {
        throw new CliError(
          Exit.Busy,
          `did not release ${quoted(key)}: it has another holder now; run the command again to see it`,
        )
      }
      const released = await locks.forceRelease(key)
      if (json) sayJson({ key, released, leases: info.leases })
      else say(`${quoted(key)} ${outcomeOf(key, info, released)}`)
      return released ? Exit.Ok : Exit.No
    })
  },
}

function outcomeOf(key: string, info: api.LockInfo, released: boolean): string {
  if (isRemembered(key, info)) return released ? 'is forgotten, so its work may run again' : 'was forgotten by itself'
  return released ? 'was taken away' : 'became free by itself'
}

/** Asks the user. Resolves with false for Ctrl-C, Ctrl-D and any answer but yes. */
async function isSure(): Promise<boolean> {
  const question = createInterface({ input: process.stdin, output: process.stderr })
  const warning = 'Its holder may still be at work, and finds out only at its next renewal.'
  // When the question is closed, the promise of its answer rejects with an AbortError or, in other
  // versions of Node, never settles.
  const closed = once(question, 'close').then(() => undefined)
  const asked = question
    .question(`${paint('yellow', warning, process.stderr)}\nTake it away? [y/N] `)
    .catch((error: Error) => {
      if (error.name !== 'AbortError') throw error
    })
  try {
    const answer = await Promise.race([asked, closed])
    if (typeof answer === 'string') return /^y(es)?$/i.test(answer.trim())
    // The line with the question has no end yet.
    process.stderr.write('\n')
    return false
  } finally {
    question.close()
  }
}
