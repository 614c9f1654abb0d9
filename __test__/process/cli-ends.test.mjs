// `leasehold run` lives, and its command is to end: the lock stays held until that has ended.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isThere } from '../support/cli.mjs'
import { assertCleanedUp, assertInTurn, contend } from '../support/contend.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { overStores, sharedStoreNames } from '../support/stores.mjs'

const FAILING = fileURLToPath(new URL('fixtures/failing.cjs', import.meta.url))
/** Runs a command, and goes at once when a signal comes: that stays in the group. */
const IN_GROUP = ['sh', '-c', '"$0" "$@" & wait']

overStores(
  'leasehold run and the end of its command',
  (store) => {
    test('SIGTERM, and a second one: both are passed on, and the lock is held until the command has ended', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, words: ['--ttl', '500ms'] })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      assert.equal((await contended.first.ended).code, 0)
    })

    test('SIGTERM ends the command at once, and others of its group clean up: the lock is held until then', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap: IN_GROUP })
      contended.first.signal('SIGTERM')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      assert.equal((await contended.first.ended).signal, 'SIGTERM')
    })

    test('others of its group that do not end are killed after --grace', async (t) => {
      const options = { clean: FOR_EVER, wrap: IN_GROUP, words: ['--grace', '700ms'] }
      const contended = await contend(t, store.url, store.key(), options)
      contended.first.signal('SIGTERM')
      await assertInTurn(t, contended)
      assert.ok(!isThere(contended.pid))
    })

    test('killed while others of its group clean up: the lock is held until then', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap: IN_GROUP })
      contended.first.signal('SIGTERM')
      await contended.journal.seen('first', 'clean')
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
    })

    test('--max-hold: the lock is held until the command has ended', async (t) => {
      const words = ['--ttl', '300ms', '--max-hold', '1s', '--json']
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

    const skip = process.versions.bun ? 'Bun does not hear --require in NODE_OPTIONS' : false
    test('an error of ours stops the command, and the lock is held until it has ended', { skip }, async (t) => {
      const env = { NODE_OPTIONS: `--require ${FAILING}` }
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, env })
      contended.first.signal('SIGWINCH')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
      const { code, stderr } = await contended.first.ended
      assert.equal(code, 1)
      assert.match(stderr, /a mistake of ours/)
    })
  },
  sharedStoreNames,
)
