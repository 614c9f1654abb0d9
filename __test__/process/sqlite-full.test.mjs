// A lock file whose log could fill the file system, or exceed a process's limit for file sizes.

import assert from 'node:assert/strict'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { noSmallFileSystem, onSmallFileSystem } from '../support/namespaces.mjs'
import { temporaryFolder } from '../support/servers.mjs'

describe('sqlite: a small file system', { timeout: 120_000, skip: noSmallFileSystem }, () => {
  for (const size of ['300k', '2m']) {
    test(`a log that fills a file system of ${size} is emptied, and locks are still granted`, async (t) => {
      const folder = temporaryFolder(t)
      const options = { store: `sqlite:${join(folder, 'locks.db')}`, turns: 3_000 }
      const child = startChild(t, 'turns.mjs', options, { launcher: onSmallFileSystem(folder, size) })
      const { turns, error, log } = await child.next('done', 60_000)
      assert.deepEqual([turns, error], [3_000, undefined])
      t.diagnostic(`the log has ${log} bytes`)
    })
  }

  test('the log of a killed process is emptied if it fills the disk', async (t) => {
    const folder = temporaryFolder(t)
    const options = { store: `sqlite:${join(folder, 'locks.db')}` }
    const child = startChild(t, 'full-disk.mjs', options, { launcher: onSmallFileSystem(folder, '4m') })
    const { log, fence, error } = await child.next('done', 60_000)
    assert.ok(log > 100_000, `the log has ${log} bytes`)
    assert.equal(error, undefined)
    assert.ok(fence > 0)
  })

  test('on a file system of 5m, the log leaves room for a database that grows', async (t) => {
    const folder = temporaryFolder(t)
    const options = { store: `sqlite:${join(folder, 'locks.db')}`, turns: 10_000, everyOnce: 50, atOnce: 4 }
    const child = startChild(t, 'turns.mjs', options, { launcher: onSmallFileSystem(folder, '5m') })
    const { turns, error, log } = await child.next('done', 60_000)
    assert.deepEqual([turns, error], [10_000, undefined])
    assert.ok(log < 2_000_000, `the log has ${log} bytes`)
  })
})

describe('sqlite: a log that several processes write to', { timeout: 120_000 }, () => {
  const startTurns = (t, store, options, launcher) => startChild(t, 'turns.mjs', { store, ...options }, { launcher })

  test('the log stays short, although several processes lock all the time', async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    // Without a limit, these turns would write more than 20 MB.
    const options = { turns: 1_000, atOnce: 2, wait: 30_000 }
    // 16 384 blocks of 512 bytes are 8 MB. The log may take a quarter of that, 2 MB.
    const limited = ['/bin/sh', '-c', 'ulimit -f 16384 && exec "$@"', 'sh']
    const children = [1, 2, 3, 4, 5, 6].map(() => startTurns(t, `sqlite:${path}`, options, limited))
    let longest = 0
    const sample = setInterval(() => {
      longest = Math.max(longest, statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0)
    }, 20)
    const ends = await Promise.all(children.map((child) => child.next('done', 100_000)))
    clearInterval(sample)
    assert.deepEqual(
      ends.map(({ error }) => error),
      Array(6).fill(undefined),
    )
    t.diagnostic(`the longest log had ${longest} bytes`)
    assert.ok(longest < 6e6, `the log had ${longest} bytes`)
  })

  test('a process with a file size limit works next to one without', { skip: !existsSync('/bin/sh') }, async (t) => {
    const path = join(temporaryFolder(t), 'locks.db')
    const free = startTurns(t, `sqlite:${path}`, { turns: 1_000, stays: true })
    const { log } = await free.next('done', 60_000)
    assert.ok(log > 2e6, `the log is longer than the limit: ${log} bytes`)
    const limited = ['/bin/sh', '-c', 'ulimit -f 1024 && exec "$@"', 'sh']
    const bound = startTurns(t, `sqlite:${path}`, { turns: 1_000 }, limited)
    const { turns, error } = await bound.next('done', 60_000)
    assert.deepEqual([turns, error], [1_000, undefined])
  })
})
