// The guard of `leasehold run` is a shell script, and /bin/sh is a different shell on each system.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { isThere } from '../support/cli.mjs'
import { now } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'

const { SCRIPT } = createRequire(import.meta.url)('../../dist/cli/guard.js')

/** How long the lock is safe without renewal, and the time from SIGTERM to SIGKILL, in s. */
const SAFE = 2
const GRACE = 30

/** The last argument of a successor is the id of the guard. It signals that it renews the lock. */
const RENEWS = ['-c', 'read -r _; while kill -USR1 "$0"; do sleep 0.2; done']
const HANGS = ['-c', 'read -r _; kill -USR1 "$0"; exec sleep 10']
const NEVER_RENEWS = ['-c', 'exit 1']

/** Starts a guard with the shell, and a command that works for `work` s after SIGTERM. */
async function guard(t, [file, ...words], successor, work) {
  const command = `trap : TERM; echo ready; sleep 60 & wait; kill $!; exec sleep ${work}`
  const target = spawn('/bin/sh', ['-c', command], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  atEnd(t, () => isThere(target.pid) && process.kill(-target.pid, 'SIGKILL'))
  await once(target.stdout, 'data')
  const shown = [GRACE, SAFE, '/'].map(String)
  const script = [...words, '-c', SCRIPT, 'leasehold-guard', ...shown, '/bin/sh', ...successor]
  const shell = spawn(file, script, { stdio: ['pipe', 'pipe', 'inherit'] })
  atEnd(t, () => shell.kill('SIGKILL'))
  shell.stdin.write(`-${target.pid}\ntakeover\n`)
  await once(shell.stdout, 'data')
  const start = now()
  // This process is gone, as far as the guard can tell.
  shell.stdin.end()
  const [code, signal] = await once(target, 'exit')
  return { code, signal, after: now() - start }
}

describe('the guard of leasehold run', { timeout: 120_000, skip: process.platform === 'win32' }, () => {
  for (const shell of [['sh'], ['dash'], ['bash', '--posix'], ['busybox', 'sh']]) {
    const [file, ...words] = shell
    const missing = spawnSync(file, [...words, '-c', 'exit 0']).status !== 0
    const options = { skip: missing ? `${file} is not installed` : false, concurrency: true }

    describe(`in ${shell.join(' ')}`, options, () => {
      test('lets the command clean up while its successor renews the lock', async (t) => {
        const { code, signal, after } = await guard(t, shell, RENEWS, SAFE + 3)
        assert.deepEqual([code, signal], [0, null], `after ${after} ms`)
      })

      for (const [what, successor] of [
        ['hangs', HANGS],
        ['never renews', NEVER_RENEWS],
      ]) {
        test(`kills the command before the lock ends if each successor ${what}`, async (t) => {
          const { signal, after } = await guard(t, shell, successor, GRACE)
          assert.equal(signal, 'SIGKILL')
          t.diagnostic(`after ${Math.round(after)} ms`)
          assert.ok(after > 900 && after < 6_000, `${after} ms`)
        })
      }
    })
  }
})
