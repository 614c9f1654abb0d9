// Those who test their own code let its clock stand still; what leasehold does behind the scenes goes on.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { within } from '../support/clock.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

describe('fake clocks', { timeout: 60_000 }, () => {
  for (const name of storeNames) {
    test(`with every timer, tick and queueMicrotask() faked before it is loaded, locks are waited for and given back: ${name}`, async (t) => {
      const child = startChild(t, 'fake-clock.mjs', { store: await openStore(name, t) })
      assert.equal((await child.next('done', 20_000)).count, 60)
      assert.deepEqual(await within('the end of the process', child.ended, 10_000), { code: 0, signal: null })
    })
  }
})
