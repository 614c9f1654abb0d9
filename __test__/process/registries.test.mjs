// Test runners load the package again for each test file. A copy whose clients are closed must not
// stay in memory, and must leave no listener.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { within } from '../support/clock.mjs'

/** How many copies are loaded. More take longer, and show nothing more. */
const COUNT = 10

describe('module registries that follow one another', { timeout: 120_000 }, () => {
  for (const way of ['require', 'context']) {
    for (const use of ['nothing', 'lease', 'busy', 'worker', 'refused']) {
      test(`${way}: a copy is collected after its use: ${use}`, async (t) => {
        const child = startChild(t, 'registries.mjs', { way, use, count: COUNT }, { nodeArgs: ['--expose-gc'] })
        const { alive, listeners } = await child.next('over', 60_000)
        assert.deepEqual(listeners, [0, 0], "listeners to 'exit' and to the signal")
        // The last copy may be in use yet, for example by the cache of `require`.
        assert.ok(alive <= 1, `${alive} of ${COUNT} copies are still in memory`)
        assert.deepEqual(await within('the natural end', child.ended, 10_000), { code: 0, signal: null })
      })
    }
  }
})
