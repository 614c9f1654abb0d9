// Kills or stops `leasehold run` while its user may start no more processes.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { chownSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { CLI, isThere, killIfThere, start } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

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
  const limited = ['prlimit', '--nproc=1', 'true']
  return spawnSync(file, [...asUser, ...limited]).status === 0 ? false : 'needs setpriv and prlimit'
}

/**
 * Runs {@link COMMAND} as that user. Resolves to its store (by default a file), its leasehold
 * (`first`), its process id (`command`) and its guard.
 */
async function runAsUser(t, words, { command = ['sh', '-c', COMMAND], store } = {}) {
  const folder = temporaryFolder(t)
  chownSync(folder, USER, USER)
  store ??= `sqlite:${join(folder, 'locks.db')}`
  const run = [process.execPath, CLI, 'run', 'k', '-s', store, ...words, '--', ...command]
  const [file, ...args] = [...AS_USER, ...run]
  const first = start(t, file, args)
  const pid = Number((await first.says(/^pid (\d+)$/m))[1])
  // The process leads a group.
  atEnd(t, () => killIfThere(-pid))
  const guard = processes().find(({ parent, args }) => parent === first.pid && args.includes('leasehold-guard'))
  return { store, first, command: pid, guard }
}

/** Sets how many processes and threads that user may have at most when the guard starts one. */
const limit = ({ pid }, most) =>
  execFileSync(AS_USER[0], [...AS_USER.slice(1), 'prlimit', '--pid', String(pid), `--nproc=${most}:`])

/** Returns the names of the threads of a process. */
const threads = ({ pid }) =>
  readdirSync(`/proc/${pid}/task`).map((id) => readFileSync(`/proc/${pid}/task/${id}/comm`, 'utf8').trim())

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

/** Runs {@link COMMAND} in another session. Its main process ends on SIGTERM. */
const IN_SESSION = ['sh', '-c', `setsid sh -c "$0" & trap 'exit 0' TERM; while :; do wait; done`, COMMAND]

describe('leasehold run without room for another process', { timeout: 120_000, skip: reason(), concurrency: 2 }, () => {
  for (const [what, command] of [
    ['the command', undefined],
    ['a process in another session', IN_SESSION],
  ])
    for (const [how, signal, words, most] of [
      [
        'killed: %s is killed after --grace, and the lock is free soon',
        'SIGKILL',
        ['--ttl', '30s', '--grace', '2s'],
        9_000,
      ],
      [
        'stopped: %s is killed after --grace, and the lock is free soon',
        'SIGSTOP',
        ['--ttl', '6s', '--grace', '1s'],
        9_000,
      ],
    ]) {
      test(how.replace('%s', what), async (t) => {
        const running = await runAsUser(t, words, { command })
        limit(running.guard, LIMIT)
        running.first.signal(signal)
        await assertFree(t, running, most)
      })
    }

  test('killed: the guard reaches a server again by its name, and the lock is free soon after --grace', async (t) => {
    const redis = await startRedis(t)
    const store = `redis://localhost:${redis.port}`
    const running = await runAsUser(t, ['--ttl', '30s', '--grace', '2s'], { store })
    // A thread that still runs could look up the name.
    await until('no thread', () => !threads(running.guard).some((name) => name.startsWith('tokio')))
    limit(running.guard, LIMIT)
    for (const type of ['normal', 'pubsub']) await redis.ask('CLIENT', 'KILL', 'TYPE', type)
    running.first.signal('SIGKILL')
    await assertFree(t, running, 9_000)
  })
})
