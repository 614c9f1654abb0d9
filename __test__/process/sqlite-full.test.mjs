// Tests a lock file on a file system that is smaller than SQLite's longest log.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { noSmallFileSystem, onSmallFileSystem } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

describe('sqlite: a small file system', { timeout: 120_000, skip: noSmallFileSystem }, () => {
  for (const size of ['300k', '2m']) {
    test(`${size}: a log that fills it is emptied, and locks are still granted`, async (t) => {
      const folder = temporaryFolder(t)
      const options = { store: `sqlite:${join(folder, 'locks.db')}`, turns: 3_000 }
      const child = startChild(t, 'turns.mjs', options, { launcher: onSmallFileSystem(folder, size) })
      const { turns, error, log } = await child.next('done', 60_000)
      assert.deepEqual([turns, error], [3_000, undefined])
      t.diagnostic(`the log has ${log} bytes`)
    })
  }

  test('5m: the log leaves room for a database that grows', async (t) => {
    const folder = temporaryFolder(t)
    const options = { store: `sqlite:${join(folder, 'locks.db')}`, turns: 10_000, everyOnce: 50, atOnce: 4 }
    const child = startChild(t, 'turns.mjs', options, { launcher: onSmallFileSystem(folder, '5m') })
    const { turns, error, log } = await child.next('done', 60_000)
    assert.deepEqual([turns, error], [10_000, undefined])
    assert.ok(log < 2_000_000, `the log has ${log} bytes`)
  })
})
