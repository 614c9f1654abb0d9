// Processes of a command that leave its process group or its session keep the lock, and
// `leasehold run` stops them with the command. Each command runs under a wrapper that makes it
// leave.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CLI, isThere } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

/** A nested leasehold, which gives its command a session of its own, and up to 20 s to clean up. */
const nested = (key) => [process.execPath, CLI, 'run', `inner-${key}`, '--grace', '20s', '--']
/** A shell that runs a command in another process group, and ends at once on a signal. */
const TIMEOUT = ['sh', '-c', 'timeout 60 "$0" "$@"; echo done']
/** A shell that runs a command in another session. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']
/**
 * A shell that runs a command without the mark in another session. Only the parent of this command
 * shows to which run it belongs.
 */
const BARE = ['sh', '-c', 'env -u LEASEHOLD_RUN setsid "$0" "$@" & while :; do sleep 0.05; done']

/**
 * Options that stop the command after 6 s. Before that, three Node processes have to start, even on
 * a busy machine, so that the second command waits.
 */
const OVERDUE = ['--ttl', '1s', '--max-hold', '6s']
/** How long a command cleans up, in ms: longer than the ttl, so the lease has to be renewed. */
const CLEAN = 1_500
/**
 * The ways to make leasehold stop its command: a title, the options of `run`, and what the test
 * does.
 */
const WAYS = [
  ['--max-hold', OVERDUE, () => {}],
  ['SIGKILL', ['--ttl', '10s'], (first) => first.signal('SIGKILL')],
  ['SIGTERM', ['--ttl', '10s'], (first) => first.signal('SIGTERM')],
]

const skip = process.platform === 'linux' ? false : 'other systems do not show the processes of a command'

overStores(
  'leasehold run and processes that leave the group of its command',
  (store) => {
    for (const [way, words, begin] of WAYS) {
      for (const [what, wrap] of [
        ['a process group', TIMEOUT],
        ['a session', SETSID],
      ]) {
        test(`after ${way}, a job with ${what} of its own gets SIGTERM, and the lock stays held until it has ended`, {
          skip,
        }, async (t) => {
          const contended = await contend(t, store.url, store.key(), { clean: CLEAN, wrap, words })
          begin(contended.first)
          await assertCleanedUp(contended, await assertInTurn(t, contended), CLEAN)
        })
      }

      // After a signal, the command of a nested leasehold decides when to end, and the outer
      // leasehold waits.
      if (way === 'SIGTERM') continue
      test(`after ${way}, the command of a nested leasehold keeps the lock of the outer one until it is killed`, {
        skip,
      }, async (t) => {
        const key = store.key()
        const given = [...words, '--grace', '700ms']
        const contended = await contend(t, store.url, key, { clean: FOR_EVER, wrap: nested(key), words: given })
        begin(contended.first)
        assert.equal((await assertInTurn(t, contended)).ended, false)
        assert.ok(!isThere(contended.pid))
        // The guard of the nested leasehold is left alone, and releases its lock.
        await until('the inner lock to be free', async () => (await contended.locks.inspect(`inner-${key}`)) === null)
      })
    }

    test('if leasehold is killed together with a nested one, the lock stays held until the command is gone', {
      skip,
    }, async (t) => {
      const key = store.key()
      const words = ['--grace', '700ms']
      const contended = await contend(t, store.url, key, { clean: FOR_EVER, wrap: nested(key), words })
      const { parent } = processes().find(({ pid }) => pid === contended.pid)
      contended.first.signal('SIGKILL')
      process.kill(parent, 'SIGKILL')
      assert.equal((await assertInTurn(t, contended)).ended, false)
      assert.ok(!isThere(contended.pid))
    })

    test('a daemon with an empty LEASEHOLD_RUN is left alone', { skip }, async (t) => {
      const wrap = ['sh', '-c', 'LEASEHOLD_RUN= setsid "$0" "$@" & while :; do sleep 0.05; done']
      const contended = await contend(t, store.url, store.key(), { wrap })
      contended.first.signal('SIGTERM')
      assert.equal((await contended.second.ended).code, 0)
      assert.ok(isThere(contended.pid))
      assert.equal(contended.journal.count('first', 'SIGTERM'), 0)
    })

    for (const [what, wrap] of [
      ['', []],
      [', even without the mark of the outer one', ['env', '-u', 'LEASEHOLD_RUN']],
    ]) {
      test(`a nested leasehold passes SIGTERM on, and its command gets it once${what}`, { skip }, async (t) => {
        const key = store.key()
        const words = [...OVERDUE, '--grace', '5s']
        const options = { clean: CLEAN, wrap: [...wrap, ...nested(key)], words }
        const contended = await contend(t, store.url, key, options)
        await assertCleanedUp(contended, await assertInTurn(t, contended), CLEAN)
        assert.equal(contended.journal.count('first', 'SIGTERM'), 1)
      })
    }

    test('a nested leasehold without the mark of the outer one is killed with its command', { skip }, async (t) => {
      const key = store.key()
      const wrap = ['env', '-u', 'LEASEHOLD_RUN', ...nested(key)]
      const words = [...OVERDUE, '--grace', '700ms']
      const contended = await contend(t, store.url, key, { clean: FOR_EVER, wrap, words })
      assert.equal((await assertInTurn(t, contended)).ended, false)
      assert.ok(!isThere(contended.pid))
    })

    test('a job that clears its environment and leaves the session is found by its parent', { skip }, async (t) => {
      const words = [...OVERDUE, '--grace', '3s']
      const contended = await contend(t, store.url, store.key(), { clean: CLEAN, wrap: BARE, words })
      await assertCleanedUp(contended, await assertInTurn(t, contended), CLEAN)
    })

    test('a job that clears its environment keeps the lock, even if SIGTERM has ended its parent', {
      skip,
    }, async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: CLEAN, wrap: BARE })
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), CLEAN)
    })
  },
  processStoreNames,
  // The tests mostly wait for grace periods and ttls.
  { concurrency: 2 },
)
