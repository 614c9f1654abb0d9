// The project's demo, which is published with the package.

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { MIN_TTL } from '../arguments'
import { type Command, flag, text } from './command'
import { parseDuration } from './duration'
import { Exit } from './exits'

const SCRIPT = join(__dirname, '..', '..', 'examples', 'demo', 'demo.mjs')

export const demo: Command = {
  name: 'demo',
  synopsis: '[options]',
  summary: 'watch processes compete for a lock, and lose nothing',
  details: `
Starts three processes that compete for one lock and do a list of jobs in order. The first is stopped, the
second killed with SIGKILL, and the third finishes the list. Exit code 0 if no job was lost, doubled or out
of order; --without-lock shows what happens otherwise, and fails. Takes about ten seconds, and needs no server.`,
  examples: ['leasehold demo', 'leasehold demo --store redis://localhost', 'leasehold demo --without-lock'],
  options: {
    store: {
      type: 'string',
      short: 's',
      value: 'URL',
      help: 'where the lock is. Default: a file that is gone afterwards',
    },
    ttl: { type: 'string', value: 'TIME', help: 'what a crash costs on Redis. Default 2s' },
    'without-lock': { type: 'boolean', help: 'nobody asks for the lock' },
  },
  words: [0, 0],
  async run(given) {
    const args = [SCRIPT]
    const [store, ttl] = [text(given, 'store'), text(given, 'ttl')]
    if (store !== undefined) args.push('--store', store)
    if (ttl !== undefined) args.push('--ttl', String(parseDuration('ttl', ttl, MIN_TTL)))
    if (flag(given, 'without-lock')) args.push('--without-lock')
    if (flag(given, 'json')) args.push('--json')
    const child = spawn(process.execPath, args, { stdio: 'inherit' })
    // A terminal tells it by itself; whoever tells only us wants it ended, too.
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
    return new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code) => resolve(code ?? Exit.No))
    })
  },
}
