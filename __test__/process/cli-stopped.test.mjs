// Stops `leasehold run` (SIGSTOP) without killing it. The guard ends the command before another
// command can get the lock.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { isThere, leasehold } from '../support/cli.mjs'
import { sleep, until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend as contendFor, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { temporaryFolder } from '../support/servers.mjs'

/** A shell that runs a command in another session. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']
const GUARD_STOPPED_IT = /^leasehold: leasehold was stopped \(SIGSTOP\).* "k".*the guard stopped the command.*\n$/

const childOf = (pid, text) => processes().find(({ parent, args }) => parent === pid && args.includes(text))

/** Contends for a lock in a file. The file stays until the guard has ended. */
async function contend(t, options) {
  const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
  const contended = await contendFor(t, store, 'k', options)
  const guard = childOf(contended.first.pid, 'leasehold-guard')
  atEnd(t, async () => {
    contended.first.process.kill('SIGKILL')
    await until('the guard to end', () => !isThere(guard.pid))
  })
  return { ...contended, guard }
}

/** Lets the stopped `leasehold run` continue. Asserts that it ends as after a loss. */
async function assertContinued({ first }, message) {
  assert.equal(isThere(first.pid), true)
  first.signal('SIGCONT')
  const { code, stderr } = await first.ended
  assert.equal(code, 70, stderr)
  assert.match(stderr, message)
}

const skip = process.platform === 'linux' ? false : 'needs /proc'
describe('leasehold run, stopped', { skip, timeout: 120_000, concurrency: 2 }, () => {
  for (const [ttl, what, wrap] of [
    [5_000, 'the command', []],
    [5_000, 'a process in another session', SETSID],
    [12_000, 'the command', []],
    [12_000, 'a process in another session', SETSID],
  ]) {
    test(`with a ttl of ${ttl} ms, ${what} has time to clean up before the next command begins`, async (t) => {
      const words = ['--ttl', `${ttl}ms`, '--grace', '30s']
      const contended = await contend(t, { clean: 300, wrap, words })
      contended.first.signal('SIGSTOP')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 300)
      await assertContinued(contended, GUARD_STOPPED_IT)
    })
  }

  test('a command that ignores SIGTERM is killed after --grace, before the next command begins', async (t) => {
    const words = ['--ttl', '6s', '--grace', '1s']
    const contended = await contend(t, { clean: FOR_EVER, words })
    contended.first.signal('SIGSTOP')
    assert.equal((await assertInTurn(t, contended)).ended, false)
    await assertContinued(contended, GUARD_STOPPED_IT)
  })

  test('and continued while the command cleans up, it waits until the command has ended', async (t) => {
    const words = ['--ttl', '6s', '--grace', '30s']
    const contended = await contend(t, { clean: 1_000, words })
    contended.first.signal('SIGSTOP')
    await contended.journal.seen('first', 'clean')
    await assertContinued(contended, GUARD_STOPPED_IT)
    await assertCleanedUp(contended, await assertInTurn(t, contended), 1_000)
    assert.equal(contended.journal.count('first', 'SIGTERM'), 1)
  })

  /** A shell that runs a command in another process group of its session. */
  const TIMEOUT = ['sh', '-c', 'timeout 100 "$0" "$@"; echo over']
  for (const [what, wrap] of [
    ['the guard ends the command', []],
    ['the guard ends the processes that go on in another group', TIMEOUT],
    ['the guard ends the processes that go on in another session', SETSID],
  ]) {
    test(`together with its command: ${what} before the next command begins`, async (t) => {
      const contended = await contend(t, { clean: 300, wrap, words: ['--ttl', '4s', '--grace', '30s'] })
      const { first, pid } = contended
      const main = wrap.length === 0 ? pid : childOf(first.pid, wrap.at(-1)).pid
      for (const stopped of [main, first.pid]) process.kill(stopped, 'SIGSTOP')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 300)
      await assertContinued(contended, GUARD_STOPPED_IT)
    })
  }

  // In these cases, leasehold itself would end the processes that the command left behind.
  const EXITING = ['sh', '-c', 'trap "echo asked; sleep 1; exit 0" TERM; setsid "$0" "$@" & wait']
  for (const [what, wrap, end] of [
    ['a signal has ended', SETSID, ({ first }) => process.kill(childOf(first.pid, 'setsid').pid, 'SIGKILL')],
    ['has ended because a signal asked it to', EXITING, () => {}],
  ]) {
    test(`with a command that ${what}: the guard ends the other processes before the next command begins`, async (t) => {
      const contended = await contend(t, { clean: 300, wrap, words: ['--ttl', '4s', '--grace', '30s'] })
      const { first } = contended
      if (wrap === EXITING) {
        first.signal('SIGTERM')
        await first.says(/asked/)
      }
      first.signal('SIGSTOP')
      end(contended)
      await assertCleanedUp(contended, await assertInTurn(t, contended), 300)
    })
  }

  test('until its command has ended by itself, it ends like the command', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const words = ['run', 'k', '-s', store, '--ttl', '8s', '--', 'sh', '-c', 'echo runs; sleep 2; exit 5']
    const running = leasehold(t, words)
    await running.says(/runs/)
    const guard = childOf(running.pid, 'leasehold-guard')
    running.signal('SIGSTOP')
    const other = leasehold(t, ['run', 'k', '-s', store, '--wait', '30s', '--', 'true'])
    assert.equal((await other.ended).code, 0)
    assert.equal(isThere(guard.pid), true, 'the guard still waits')
    running.signal('SIGCONT')
    const { code, stderr } = await running.ended
    assert.equal(code, 5, stderr)
    assert.equal(stderr, '', 'the command had ended before the lock was lost')
  })

  test('for less than the ttl, its command runs on, and the guard ends with it', async (t) => {
    const contended = await contend(t, { words: ['--ttl', '20s'] })
    const { first, second, journal, guard } = contended
    first.signal('SIGSTOP')
    await sleep(1_000)
    first.signal('SIGCONT')
    assert.equal(journal.count('first', 'SIGTERM'), 0)
    first.signal('SIGTERM')
    await Promise.all([first.ended, second.ended])
    await until('the guard to be gone', () => !isThere(guard.pid))
  })
})
