// Checks what may go wrong with locks at a store.

import type * as api from '../../index'
import { MIN_TTL } from '../util/arguments'
import { formatDuration } from '../util/format-duration'
import { type Command, flag, text } from './command'
import { Exit } from './exits'
import { parseDuration } from './parse-duration'
import { STORE_OPTIONS, withClient } from './store'
import { paint, plain, say, sayJson } from './terminal'

const STYLES = { info: 'dim', warning: 'yellow', error: 'red' } as const

export const doctor: Command = {
  name: 'doctor',
  synopsis: '[options]',
  summary: 'check what may go wrong with locks at the store',
  details: `
Checks the store, and prints what may go wrong with locks there: problems with eviction, persistence, memory,
clocks, rights, replicas, round trips that are too long for the ttl, and servers that do not make a quorum.
To find out whether this user may lock, acquires and releases the lock "leasehold-doctor" on a Redis server.

Exit code 1 if the store can't grant locks, or you can't rely on them (an error); with --strict also after a
warning.`,
  examples: [
    'leasehold doctor',
    'leasehold doctor --store redis://cache.internal --ttl 2s',
    'leasehold doctor --strict',
  ],
  options: {
    ...STORE_OPTIONS,
    ttl: { type: 'string', value: 'TIME', help: 'the ttl that your leases have. Default 10s' },
    strict: { type: 'boolean', help: 'exit with code 1 after a warning, too' },
  },
  words: [0, 0],
  run: (given) => {
    const ttl = text(given, 'ttl')
    const options = ttl === undefined ? {} : { ttl: parseDuration('ttl', ttl, MIN_TTL) }
    return withClient(given, { storeTimeout: 3_000, ...options }, async (locks) => {
      const diagnosis = await locks.diagnose()
      if (flag(given, 'json')) sayJson(diagnosis)
      else tell(diagnosis)
      const bad = diagnosis.findings.some(({ level }) => level === 'error')
      return bad || (flag(given, 'strict') && !diagnosis.ok) ? Exit.No : Exit.Ok
    })
  },
}

function tell({ findings, stores }: api.Diagnosis): void {
  for (const { store, version, roundTrip, clockOffset } of stores) {
    const facts = [
      version === null ? undefined : `version ${plain(version)}`,
      roundTrip === null ? undefined : `round trip ${formatDuration(roundTrip)}`,
      clockOffset === null ? undefined : `clock ${clockOffset < 0 ? '−' : '+'}${formatDuration(Math.abs(clockOffset))}`,
    ].filter((fact) => fact !== undefined)
    say([paint('bold', plain(store)), ...facts].join(', '))
    for (const found of findings) if (found.store === store) tellOne(found)
  }
  const worst = (level: string) => findings.filter((finding) => finding.level === level).length
  const [errors, warnings] = [worst('error'), worst('warning')]
  if (errors > 0) say(paint('red', `not fit for locks: ${errors} error${errors > 1 ? 's' : ''}`))
  else if (warnings > 0) say(paint('yellow', `usable, with ${warnings} warning${warnings > 1 ? 's' : ''}`))
  else say(paint('green', 'nothing is wrong'))
}

/** Prints a finding below the line of its store, without the name of the store. */
function tellOne({ level, code, store, message }: api.Finding): void {
  const behind = message.startsWith(store) ? message.slice(store.length).replace(/^:? /, '') : message
  say(`${paint(STYLES[level], level.padEnd(7))} ${paint('bold', code)}\n        ${plain(behind)}`)
}
