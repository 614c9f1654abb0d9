// Tests that use fake timers stop the clock of their own code. The timers of leasehold must still
// run.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { startChild } from '../support/child.mjs'
import { within } from '../support/clock.mjs'
import { openStore, storeNames } from '../support/stores.mjs'

describe('fake clocks', { timeout: 60_000 }, () => {
  for (const name of storeNames) {
    test(`with all timers, ticks and queueMicrotask() faked before leasehold is loaded, locks are acquired and released: ${name}`, async (t) => {
      const child = startChild(t, 'fake-clock.mjs', { store: await openStore(name, t) })
      assert.equal((await child.next('done', 20_000)).count, 60)
      assert.deepEqual(await within('the end of the process', child.ended, 10_000), { code: 0, signal: null })
    })
  }

  const WAIT = 500
  for (const [what, jump] of [
    ['stands still', 0],
    ['jumps', 3_600_000],
    ['jumps back', -3_600_000],
  ]) {
    test(`a performance.now() that ${what} changes neither \`wait\` nor the durations that are published`, async (t) => {
      const child = startChild(t, 'fake-performance.mjs', { store: await openStore('memory', t), wait: WAIT, jump })
      for (const event of ['several', 'retry']) {
        const { ms, error } = await child.next(event, 20_000)
        assert.equal(error?.code, 'ERR_LOCK_TIMEOUT', event)
        assert.ok(ms >= WAIT - 1 && ms < 1.6 * WAIT, `${event}: the wait of ${WAIT} ms took ${ms} ms`)
      }
      const { duration, held } = await child.next('told', 20_000)
      assert.ok(duration >= WAIT - 1 && duration < 1.6 * WAIT, `the duration of a call: ${duration} ms`)
      assert.ok(held >= WAIT && held < 20_000, `the time that a lease was held: ${held} ms`)
      assert.deepEqual(await within('the end of the process', child.ended, 10_000), { code: 0, signal: null })
    })
  }
})
