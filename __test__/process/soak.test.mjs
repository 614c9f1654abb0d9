// Nothing piles up in the process. (The long run is __test__/soak.mjs.)

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

describe('soak', { timeout: 300_000 }, () => {
  for (const name of storeNames) {
    test(`${name}: memory, files, threads and handles don't grow with use`, async (t) => {
      // The embedded store syncs its file to disk, so it is slower. It needs fewer pairs to show
      // that a lease leaks.
      const pairs = name === 'sqlite' ? 10_000 : 50_000
      const store = await openStore(name, t)
      const child = startChild(t, 'soak.mjs', { store, pairs, cycles: 20 }, { nodeArgs: ['--expose-gc'] })
      const before = await child.next('before', 200_000)
      const after = await child.next('after', 200_000)
      t.diagnostic(`before ${JSON.stringify(before)}`)
      t.diagnostic(`after  ${JSON.stringify(after)}`)
      // A leak of 100 bytes per pair would be 5 MB here. Allocators and V8 keep a few MB
      // themselves.
      assert.ok(after.heap - before.heap < 2, 'heap')
      assert.ok(after.rss - before.rss < 12, 'rss')
      assert.ok(after.files <= before.files + 1, 'files')
      assert.ok(after.threads <= before.threads, 'threads')
      assert.ok(after.handles <= before.handles + 1, 'handles')
      assert.equal((await child.ended).code, 0)
    })
  }
})
