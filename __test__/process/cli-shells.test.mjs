// The guard of `leasehold run` is a shell script, and /bin/sh is a different shell on each system.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { uptime } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { isThere, killIfThere } from '../support/cli.mjs'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const { SCRIPT, uncheckedFor } = createRequire(import.meta.url)('../../dist/cli/guard-script.js')

/** The ttl, in ms, and the time from SIGTERM to SIGKILL, in s. */
const TTL = 6_000
const GRACE = 30

/** The last argument of a successor is the id of the guard. It signals that it renews the lock. */
const RENEWS = ['-c', 'read -r _; while kill -USR1 "$0"; do sleep 0.2; done']
const HANGS = ['-c', 'read -r _; kill -USR1 "$0"; exec sleep 10']
const HANGS_SILENTLY = ['-c', 'read -r _; exec /bin/sleep 30']
const NEVER_RENEWS = ['-c', 'exit 1']

/**
 * Takes the place of `sleep` where each pause of the guard takes long. It sends the only signal.
 */
const SLOW_SLEEP = `#!/bin/sh
[ -e "$0.sent" ] || { : >"$0.sent"; kill -USR1 "$PPID"; echo sent; }
exec /bin/sleep 2.35
`

/**
 * A command that ignores SIGTERM and prints the id of its last process. That process is in another
 * process group, so that the guard has to search for it.
 */
const IN_OTHER_GROUP = `trap '' TERM; timeout 60 sh -c 'trap "" TERM; echo $$; exec sleep 60' & wait`

/** Starts a guard with the shell. The guard runs `script`, and gets `safe` as its first report. */
function startGuard(
  t,
  [file, ...words],
  target,
  { script, safe, ttl, successor, env },
  stdio = ['pipe', 'pipe', 'inherit'],
) {
  const shown = [GRACE, uncheckedFor(ttl), '/'].map(String)
  const args = [...words, '-c', script, 'leasehold-guard', ...shown, '/bin/sh', ...successor]
  const shell = spawn(file, args, { stdio, env })
  atEnd(t, () => shell.kill('SIGKILL'))
  const input = shell.stdin ?? shell.stdio[3]
  input.write(`-${target.pid} ${safe}\ntakeover\n`)
  return shell
}

const onlyLinux = process.platform === 'linux' ? false : 'needs /proc'

/** Returns a report that the lock is safe for `ms` from now. */
const safeFor = (ms) => Math.round(uptime() * 100 + ms / 10)

/**
 * Starts a guard with the shell, and a command that works for `work` s after SIGTERM. Returns how
 * the command ended, and how many ms after the guard said `mark`, or was left alone. The guard
 * gets the reports `safe`, in ms from now.
 */
async function guard(t, words, successor, work, { ttl = TTL, env = process.env, mark, safe = [] } = {}) {
  const command = `trap : TERM; echo ready; sleep 60 & wait; kill $!; exec sleep ${work}`
  const target = spawn('/bin/sh', ['-c', command], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
  atEnd(t, () => killIfThere(-target.pid))
  await once(target.stdout, 'data')
  const shell = startGuard(t, words, target, { script: SCRIPT, safe: 0, ttl, successor, env })
  await once(shell.stdout, 'data')
  for (const left of safe) {
    shell.stdin.write(`${safeFor(left)}\n`)
    await once(shell.stdout, 'data')
  }
  // A shell that counts whole seconds would err most if it begins with one.
  if (mark !== undefined) await sleep(1_000 - ((uptime() * 1_000) % 1_000))
  let start = now()
  shell.stdout.on('data', (said) => {
    if (mark !== undefined && String(said).includes(mark)) start = now()
  })
  // To the guard, leasehold is gone when this input ends.
  shell.stdin.end()
  const [code, signal] = await once(target, 'exit')
  return { code, signal, after: now() - start }
}

describe('the guard of leasehold run', { timeout: 120_000, skip: process.platform === 'win32' }, () => {
  for (const shell of [['sh'], ['dash'], ['bash', '--posix'], ['busybox', 'sh']]) {
    const [file, ...args] = shell
    const missing = spawnSync(file, [...args, '-c', 'exit 0']).status !== 0
    const options = { skip: missing ? `${file} is not installed` : false, concurrency: true }

    describe(`in ${shell.join(' ')}`, options, () => {
      test('lets the command clean up while its successor renews the lock', async (t) => {
        const { code, signal, after } = await guard(t, shell, RENEWS, 5)
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
          assert.ok(after > 900 && after < TTL, `${after} ms`)
        })
      }

      for (const [what, safe, [least, most]] of [
        ['until then', [-1_000, 5_000], [4_000, 7_000]],
        ['not at all if that time is over', [5_000, -1_000], [0, 1_000]],
      ]) {
        test(`lets the command run until the lock is no longer safe, as leasehold reports it: ${what}`, async (t) => {
          const { signal, after } = await guard(t, shell, HANGS_SILENTLY, GRACE, { safe })
          assert.equal(signal, 'SIGKILL')
          t.diagnostic(`after ${Math.round(after)} ms`)
          assert.ok(after >= least && after < most, `${after} ms`)
        })
      }

      test('ends the command if leasehold is stopped, and kills it before the lock ends', {
        skip: onlyLinux,
      }, async (t) => {
        const target = spawn('/bin/sh', ['-c', `trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done`], {
          detached: true,
          stdio: ['ignore', 'pipe', 'ignore'],
        })
        atEnd(t, () => killIfThere(-target.pid))
        let said = ''
        target.stdout.on('data', (text) => {
          said += text
        })
        await until('the command to run', () => said.includes('ready'))
        const options = { script: SCRIPT, safe: safeFor(3_000), ttl: TTL, successor: HANGS_SILENTLY, env: process.env }
        // The parent of the guard takes the place of leasehold. It passes its input to the guard.
        const words = ['-c', '"$@" <&3 3<&- & exec 3<&-; wait', 'sh', ...shell]
        const running = startGuard(t, ['/bin/sh', ...words], target, options, ['ignore', 'pipe', 'inherit', 'pipe'])
        let answers = ''
        running.stdout.on('data', (text) => {
          answers += text
        })
        await until('the guard to watch', () => answers === 'watching\n')
        running.kill('SIGSTOP')
        // This report says that the lock was renewed. The guard must not act on the earlier time.
        running.stdio[3].write(`${safeFor(5_000)}\n`)
        const start = now()
        await once(target, 'close')
        const after = now() - start
        t.diagnostic(`after ${Math.round(after)} ms`)
        assert.equal(answers, 'watching\nreported\nending\n')
        assert.equal(said, 'ready\nasked\n')
        assert.ok(after > 3_900 && after < 7_000, `${after} ms`)
        running.stdio[3].end()
      })

      test('kills what it has found before it searches again', async (t) => {
        const target = spawn('/bin/sh', ['-c', IN_OTHER_GROUP], { detached: true, stdio: ['ignore', 'pipe', 'ignore'] })
        const [pid] = await once(target.stdout, 'data')
          .then(String)
          .then((said) => said.match(/\d+/))
        atEnd(t, () => isThere(Number(pid)) && process.kill(Number(pid), 'SIGKILL'))
        const script = SCRIPT.replace('others KILL KILL\n', 'kill -STOP $$\n')
        assert.notEqual(script, SCRIPT)
        const options = { script, safe: safeFor(1_000), ttl: TTL, successor: NEVER_RENEWS, env: process.env }
        const running = startGuard(t, shell, target, options)
        await once(running.stdout, 'data')
        running.stdin.end()
        await until('the process to be killed', () => !isThere(Number(pid)))
      })

      test('with long pauses, counts from the last renewal, not from when the shell gets the signal', async (t) => {
        const folder = temporaryFolder(t)
        writeFileSync(join(folder, 'sleep'), SLOW_SLEEP, { mode: 0o755 })
        const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` }
        const { signal, after } = await guard(t, shell, HANGS_SILENTLY, GRACE, { ttl: 10_000, env, mark: 'sent' })
        assert.equal(signal, 'SIGKILL')
        t.diagnostic(`after ${Math.round(after)} ms`)
        // Two thirds of the ttl were left when the signal was sent.
        assert.ok(after < 6_667, `${after} ms`)
      })
    })
  }
})
