// Two copies of the package in one process, on one lock file.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { faults, readHistory } from '../support/history.mjs'
import { copyPackage } from '../support/packages.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const COPIES = {
  'of two versions': ['0.1.1', '0.1.2'],
  'of one version': ['0.1.3', '0.1.3'],
}

describe('sqlite: two copies of the package in one process', { timeout: 120_000 }, () => {
  for (const [what, versions] of Object.entries(COPIES)) {
    const copies = (t) => {
      const folder = temporaryFolder(t)
      const entries = versions.map((version, i) => copyPackage(join(folder, `copy${i}`), version))
      return { folder, entries, store: `sqlite:${join(folder, 'locks.db')}` }
    }

    test(`${what}, exclude each other`, async (t) => {
      const { folder, entries, store } = copies(t)
      const child = startChild(t, 'copies.mjs', { entries, store, key: 'k' })
      await child.next('ready')
      const path = join(folder, 'history')
      const { turns, error } = await child.ask('contend', { ms: 2_000, path })
      assert.equal(error, undefined)
      assert.ok(
        turns.every((count) => count > 20),
        turns.join(),
      )
      assert.deepEqual(faults(readHistory(path)), [])
    })

    test(`${what}, and the end of one copy costs the other no lock`, async (t) => {
      const { entries, store } = copies(t)
      const child = startChild(t, 'copies.mjs', { entries, store, key: 'k' })
      await child.next('ready')
      assert.equal((await child.ask('acquire', { copy: 0, ttl: 1_000 })).held, true)
      assert.equal((await child.ask('acquire', { copy: 1, ttl: 1_000 })).held, false)
      await child.ask('close', { copy: 1 })
      // When stores open and close, they would delete the log of a file that no process has locked.
      const others = [0, 1].map(() => startChild(t, 'closer.mjs', { store, key: 'k', ms: 2_500 }))
      for (const other of others) {
        const { granted, errors, rounds } = await other.next('done')
        assert.deepEqual([granted, errors], [[], []])
        assert.ok(rounds > 10)
      }
      assert.equal((await child.ask('look', { copy: 0 })).isHeld, true)
      assert.equal((await child.ask('release', { copy: 0 })).released, true)
      const next = startChild(t, 'holder.mjs', { store, key: 'k' })
      await next.next('held')
    })
  }
})
