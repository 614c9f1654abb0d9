// While `leasehold run` lives and ends its command, the lock stays held until the command has
// ended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as immediate } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { isThere, leasehold } from '../support/cli.mjs'
import { assertCleanedUp, assertInTurn, contend } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

const FAILING = fileURLToPath(new URL('fixtures/failing.cjs', import.meta.url))
const SIGNAL_AT = fileURLToPath(new URL('fixtures/signal-at.cjs', import.meta.url))
/** A shell that runs a command in the same process group, and ends at once on a signal. */
const IN_GROUP = ['sh', '-c', '"$0" "$@" & wait']

overStores(
  'leasehold run and the end of its command',
  (store) => {
    test('leasehold passes on both of two SIGTERMs, and holds the lock until the command has ended', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, words: ['--ttl', '1s'] })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      assert.equal((await contended.first.ended).code, 0)
    })

    test('if SIGTERM ends the command at once, leasehold holds the lock until its process group has cleaned up', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap: IN_GROUP })
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      assert.equal((await contended.first.ended).signal, 'SIGTERM')
    })

    for (const [what, wrap] of [
      ['command', []],
      ['process of its group', IN_GROUP],
    ]) {
      for (const signal of ['SIGTERM', 'SIGKILL']) {
        test(`after ${signal} to leasehold, a stopped ${what} continues and cleans up`, async (t) => {
          const contended = await contend(t, store.url, store.key(), { clean: 500, wrap })
          process.kill(contended.pid, 'SIGSTOP')
          contended.first.signal(signal)
          await assertCleanedUp(contended, await assertInTurn(t, contended), 500)
        })
      }
    }

    test('leasehold kills the rest of the process group after --grace', async (t) => {
      const options = { clean: FOR_EVER, wrap: IN_GROUP, words: ['--grace', '700ms'] }
      const contended = await contend(t, store.url, store.key(), options)
      contended.first.signal('SIGTERM')
      await assertInTurn(t, contended)
      assert.ok(!isThere(contended.pid))
    })

    test('if leasehold is killed while the rest of the process group cleans up, the lock stays held until it has ended', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap: IN_GROUP })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
    })

    test('after --max-hold, leasehold holds the lock until the command has ended', async (t) => {
      // The second command has to start within --max-hold, even on a busy machine.
      const words = ['--ttl', '1s', '--max-hold', '3s', '--json']
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, words })
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      const { code, stderr } = await contended.first.ended
      assert.equal(code, 70)
      const events = stderr
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
      assert.deepEqual(
        events.map(({ event, error }) => event ?? error.exit),
        ['waiting', 'acquired', 'started', 'overdue', 'ended', 70],
      )
    })

    const skip = process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false
    test('an uncaught error in leasehold stops the command, and the lock stays held until the command has ended', {
      skip,
    }, async (t) => {
      const env = { NODE_OPTIONS: `--require ${FAILING}` }
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, env })
      contended.first.signal('SIGWINCH')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      const { code, stderr } = await contended.first.ended
      assert.equal(code, 1)
      assert.match(stderr, /an unexpected error/)
    })

    for (const [what, event, command, end] of [
      [
        'between the grant and the start of the command ends both',
        'acquired',
        'sleep 60',
        { code: null, signal: 'SIGTERM' },
      ],
      ['while leasehold releases the lock changes nothing', 'ended', 'exit 3', { code: 3, signal: null }],
    ]) {
      test(`SIGTERM ${what}, and the lock is released`, { skip }, async (t) => {
        const env = { LEASEHOLD_URL: store.url, NODE_OPTIONS: `--require ${SIGNAL_AT}`, SIGNAL_AT: event }
        const key = store.key()
        const { code, signal } = await leasehold(t, ['run', key, '--json', '--', 'sh', '-c', command], env).ended
        assert.deepEqual({ code, signal }, end)
        const locks = createLockClient(store.url)
        atEnd(t, () => locks.close())
        assert.equal(await locks.inspect(key), null)
      })
    }

    test('signals that come until leasehold has ended do not replace the exit code of the command', async (t) => {
      const ends = []
      for (let i = 0; i < 5; i++) {
        const words = ['run', store.key(), '-s', store.url, '--json', '--', 'sh', '-c', 'exit 3']
        const running = leasehold(t, words)
        const ended = running.exited.then((end) => ends.push(end))
        await running.says(/"ended"/, 'stderr')
        while (ends.length === i) {
          running.process.kill('SIGTERM')
          await immediate()
        }
        await ended
      }
      assert.deepEqual(ends, Array(5).fill({ code: 3, signal: null }))
    })
  },
  processStoreNames,
)
