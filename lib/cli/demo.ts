// Runs the project's demo, which is published with the package.

import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { MIN_TTL } from '../util/arguments'
import { type Command, flag, text } from './command'
import { Exit } from './exits'
import { parseDuration } from './parse-duration'

const SCRIPT = join(__dirname, '..', '..', 'examples', 'demo', 'demo.mjs')

export const demo: Command = {
  name: 'demo',
  synopsis: '[options]',
  summary: 'watch processes compete for a lock, and lose nothing',
  details: `
Starts three processes that compete for one lock and do a list of jobs in order. The first one is stopped,
the second one is killed with SIGKILL, and the third one finishes the list. Exit code 0 if no job was lost,
doubled or out of order. --without-lock shows what happens without the lock, and fails. The demo takes about
ten seconds and needs no server.`,
  examples: ['leasehold demo', 'leasehold demo --store redis://localhost', 'leasehold demo --without-lock'],
  options: {
    store: {
      type: 'string',
      short: 's',
      value: 'URL',
      help: 'where the lock is. Default: a file that is removed at the end',
    },
    ttl: { type: 'string', value: 'TIME', help: 'how long the lock stays held after a crash on Redis. Default 2s' },
    'without-lock': { type: 'boolean', help: 'do the jobs without the lock' },
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
    // A terminal sends signals to the demo by itself. A signal to this process alone has to end the
    // demo, too.
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
    return new Promise((resolve, reject) => {
      child.once('error', reject)
      child.once('exit', (code) => resolve(code ?? Exit.No))
    })
  },
}
