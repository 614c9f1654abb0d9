// Kills or stops `leasehold run` while its user may start no more processes, or after the user may
// start processes again.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { chownSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { CLI, isThere, killIfThere, start } from '../support/cli.mjs'
import { now, sleep, until } from '../support/clock.mjs'
import { processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

/** A user without processes: root has no limit. */
const USER = 54_321
/** Must be smaller than the command's processes, and larger than Node's threads. */
const LIMIT = 40
/** Ignores SIGTERM, as its children do. */
const COMMAND = `trap '' TERM; for _ in $(seq 60); do sleep 600 & done; echo pid $$; while :; do sleep 0.1; done`

/** Runs the program and its arguments, which follow these words, as that user. */
const AS_USER = ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups']

/** Returns why the limit can't be tested here, or false. */
function reason() {
  if (process.platform !== 'linux' || process.getuid() !== 0) return 'needs Linux and root'
  const [file, ...asUser] = AS_USER
  if (spawnSync(file, [...asUser, process.execPath, CLI, '--version']).status !== 0)
    return 'another user may not run it'
  const shell = ['prlimit', '--nproc=1', '/bin/sh', '-c', `command eval 'sleep 0'; echo goes on`]
  const { stdout } = spawnSync(file, [...asUser, ...shell], { encoding: 'utf8' })
  return stdout === 'goes on\n' ? false : 'needs setpriv, prlimit and a /bin/sh that outlives a failed fork'
}

/**
 * Runs {@link COMMAND} as that user. Resolves to its store, its leasehold (`first`), its process id
 * (`command`) and its guard.
 */
async function runAsUser(t, words, command = ['sh', '-c', COMMAND]) {
  const folder = temporaryFolder(t)
  chownSync(folder, USER, USER)
  const store = `sqlite:${join(folder, 'locks.db')}`
  const run = [process.execPath, CLI, 'run', 'k', '-s', store, ...words, '--', ...command]
  const [file, ...args] = [...AS_USER, ...run]
  const first = start(t, file, args)
  const pid = Number((await first.says(/^pid (\d+)$/m))[1])
  // The process leads a group.
  atEnd(t, () => killIfThere(-pid))
  const guard = processes().find(({ parent, args }) => parent === first.pid && args.includes('leasehold-guard'))
  // A busy machine starts the successor before the command. Then there is no process to start.
  const early = processes().find(({ args }) => args.endsWith(`successor.js ${guard.pid}`))
  if (early) process.kill(early.pid, 'SIGKILL')
  return { store, first, command: pid, guard }
}

/** Sets how many processes that user may have at most when the guard starts another process. */
const limit = ({ pid }, most) =>
  execFileSync(AS_USER[0], [...AS_USER.slice(1), 'prlimit', '--pid', String(pid), `--nproc=${most}:`])

/** Acquires the lock within `most` ms. Asserts that the command has ended by then. */
async function assertFree(t, { store, command }, most) {
  const locks = createLockClient(store)
  atEnd(t, () => locks.close())
  const began = now()
  const lease = await locks.acquire('k', { wait: most })
  t.diagnostic(`the lock was free after ${Math.round(now() - began)} ms`)
  assert.ok(lease.fence > 0)
  assert.ok(!isThere(command), 'the command still ran')
  await lease.release()
}

describe('leasehold run, killed without room for another process', { timeout: 120_000, skip: reason() }, () => {
  for (const [what, words, most] of [
    [
      'the command is killed after --grace, and the lock is free soon after that',
      ['--ttl', '30s', '--grace', '2s'],
      12_000,
    ],
    [
      'the command is killed before the lock ends, even if --grace is longer',
      ['--ttl', '9s', '--grace', '60s'],
      20_000,
    ],
  ]) {
    test(what, async (t) => {
      const running = await runAsUser(t, words)
      limit(running.guard, LIMIT)
      running.first.signal('SIGKILL')
      await assertFree(t, running, most)
    })
  }
})

describe('leasehold run, killed without room for its successor for a long time', {
  timeout: 120_000,
  skip: reason(),
}, () => {
  // The guard finds the main process, but not the one in another session.
  const inSession = `trap '' TERM; for _ in $(seq 60); do sleep 600 & done; echo pid $$; while :; do sleep 0.1; done`
  const command = `setsid sh -c "$0" & trap 'exit 0' TERM; while :; do wait; done`

  test('the successor starts when there is room again, and ends the process in another session', async (t) => {
    const running = await runAsUser(t, ['--ttl', '60s', '--grace', '1s'], ['sh', '-c', command, inSession])
    limit(running.guard, LIMIT)
    running.first.signal('SIGKILL')
    // The guard tries to start the successor about once per second.
    await sleep(15_000)
    assert.ok(isThere(running.command), 'the guard found the process')
    limit(running.guard, 1_000)
    await assertFree(t, running, 30_000)
  })
})

describe('leasehold run, stopped after a time without room for another process', {
  timeout: 120_000,
  skip: reason(),
}, () => {
  test('the guard still ends the command', async (t) => {
    const running = await runAsUser(t, ['--ttl', '8s', '--grace', '1s'])
    const { first, guard } = running
    const ringer = () =>
      processes().find(({ parent, args }) => parent === guard.pid && args.includes('leasehold-guard'))
    const { pid } = await until('the timer', ringer)
    limit(guard, LIMIT)
    process.kill(pid, 'SIGKILL')
    // The guard tries to start another timer after a renewal, which takes a third of the ttl.
    await sleep(4_000)
    assert.equal(ringer(), undefined, 'there was room')
    limit(guard, 1_000)
    await until('another timer', ringer)
    first.signal('SIGSTOP')
    await assertFree(t, running, 20_000)
  })
})
