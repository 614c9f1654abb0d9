// While `leasehold run` lives and ends its command, the lock stays held until the command has
// ended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isThere } from '../support/cli.mjs'
import { assertCleanedUp, assertInTurn, contend } from '../support/contend.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { overStores, sharedStoreNames } from '../support/stores.mjs'

const FAILING = fileURLToPath(new URL('fixtures/failing.cjs', import.meta.url))
/** A shell that runs a command in the same process group, and ends at once on a signal. */
const IN_GROUP = ['sh', '-c', '"$0" "$@" & wait']

overStores(
  'leasehold run and the end of its command',
  (store) => {
    test('SIGTERM twice: leasehold passes both on, and holds the lock until the command has ended', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, words: ['--ttl', '500ms'] })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      assert.equal((await contended.first.ended).code, 0)
    })

    test('SIGTERM ends the command at once: leasehold holds the lock until its process group has cleaned up', async (t) => {
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
        test(`${signal} to leasehold: a stopped ${what} goes on and cleans up`, async (t) => {
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

    test('killed while the rest of the process group cleans up: the lock stays held until it has ended', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap: IN_GROUP })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
    })

    test('--max-hold: leasehold holds the lock until the command has ended', async (t) => {
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
  },
  sharedStoreNames,
)
