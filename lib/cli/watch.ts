// Shows the held locks again and again.

import { setTimeout as sleep } from 'node:timers/promises'
import type * as api from '../../index'
import { MOST_LISTED } from '../client/client-options'
import { type Command, count, flag, text } from './command'
import { absenceOf, fenceOf, holdersOf, isRemembered, tableOf, tellable } from './describe'
import { Exit } from './exits'
import { failureOf } from './failure'
import { LIST_TIMEOUT } from './ls'
import { parseDuration } from './parse-duration'
import { refuseServer } from './shown-word'
import { STORE_OPTIONS, withClient } from './store'
import { cut, paint, quoted, say, sayJson, shownName, warn } from './terminal'

const CLEAR = '\u001b[H\u001b[J'

export const watch: Command = {
  name: 'watch',
  synopsis: '[PATTERN] [options]',
  summary: 'show the locks that are held, again and again',
  details: `
On a terminal, it redraws a table. Otherwise it prints a line, or with --json a JSON object, for each lock
that is held, has changed hands, or is free. It looks every --interval, and does not see a lock that is held
only between two looks. See leasehold ls --help for PATTERN.`,
  examples: ['leasehold watch', "leasehold watch 'deploy:*' --interval 200ms", 'leasehold watch --json >> locks.jsonl'],
  options: {
    interval: {
      type: 'string',
      short: 'i',
      value: 'TIME',
      help: 'time from one look to the next: 50ms or more. Default 1s',
    },
    looks: { type: 'string', value: 'N', help: 'end after N looks. Default: Ctrl-C ends it' },
    limit: { type: 'string', value: 'N', help: 'show at most N locks: 1 to 10000. Default 1000' },
    ...STORE_OPTIONS,
  },
  words: [0, 1],
  run: (given) => {
    refuseServer(given.words[0], given)
    const interval = parseDuration('interval', text(given, 'interval') ?? '1s', 50)
    const looks = count(given, 'looks', Number.POSITIVE_INFINITY)
    const asked = { pattern: given.words[0] ?? '*', limit: count(given, 'limit', 1_000, 1, MOST_LISTED) }
    const json = flag(given, 'json')
    const over = new AbortController()
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => over.abort())
    return withClient(given, { storeTimeout: LIST_TIMEOUT }, async (locks) => {
      const show = process.stdout.isTTY && !json ? draw : teller(json)
      for (let look = 0; look < looks && !over.signal.aborted; look++) {
        if (look > 0) await sleep(interval, undefined, { signal: over.signal }).catch(() => {})
        if (over.signal.aborted) break
        try {
          show(await locks.list(asked))
        } catch (error) {
          // At the first look, the usage is wrong or the store was never there. Later, the error is
          // an outage that may pass.
          if (look === 0) throw error
          if (json) sayJson({ at: new Date().toISOString(), error: failureOf(error) }, process.stderr)
          else warn((error as Error).message)
        }
      }
      return Exit.Ok
    })
  },
}

function draw({ locks, complete }: api.LockList): void {
  const head = `${new Date().toLocaleTimeString()}  ${locks.length} held${complete ? '' : ', and more'}`
  const room = (process.stdout.rows || 24) - 3
  const lines = (locks.length === 0 ? '' : tableOf(locks, shownName)).split('\n')
  const shown = lines.slice(0, room).map((line) => cut(line, process.stdout))
  if (lines.length > room) shown.push(paint('dim', `… ${lines.length - room} more`))
  process.stdout.write(`${CLEAR}${paint('dim', head)}\n\n${shown.join('\n')}\n`)
}

/**
 * The most locks that are remembered although they are not in the last listing, and the most
 * characters of their keys and leases. If these are larger, a store that always has new locks takes
 * more memory. If they are smaller, more locks are reported as held again after other locks hid
 * them from the listing.
 */
const [MOST_HIDDEN, MOST_CHARACTERS] = [10_000, 4_000_000]

/** Returns a function that prints the differences between one look and the next. */
export function teller(json: boolean): (list: api.LockList) => void {
  let before = new Map<string, string>()
  const tell = (event: string, key: string, info?: api.ListedLock) => {
    const at = new Date().toISOString()
    if (json) sayJson({ at, event, key, ...(info && tellable(info)) })
    else if (info === undefined) say(`${at}  ${absenceOf(key)}`)
    else if (isRemembered(key, info))
      say(`${at}  ${quoted(key)} remembered: by ${holdersOf(info)}, fence ${fenceOf(info)}`)
    else
      say(
        `${at}  ${quoted(key)} ${event} by ${holdersOf(info)}, fence ${fenceOf(info)}, ${info.waiters.length} waiting`,
      )
  }
  return ({ locks, complete }) => {
    const now = new Map<string, string>()
    for (const info of locks) {
      const leases = JSON.stringify(info.leases.map(({ holder, fence }) => [holder, fence]))
      now.set(info.key, leases)
      const known = before.get(info.key)
      if (known === undefined) tell('held', info.key, info)
      else if (known !== leases) tell('changed', info.key, info)
    }
    let [hidden, characters] = [0, 0]
    for (const [key, leases] of before) {
      if (now.has(key)) continue
      // A lock that is missing from an incomplete listing may still be held. The locks of the
      // previous listing come first, so the limits drop the locks that have been missing longest.
      if (complete) tell('free', key)
      else {
        hidden++
        characters += key.length + leases.length
        if (hidden <= MOST_HIDDEN && characters <= MOST_CHARACTERS) now.set(key, leases)
      }
    }
    before = now
  }
}
