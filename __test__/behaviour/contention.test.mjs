// Checks the message and the properties of a LockTimeoutError for each answer of the store.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'

const { contentionOf } = createRequire(import.meta.url)('../../dist/diagnostics/contention.js')

const CALLER = { id: 1, name: 'web-1', isQuorum: false }
const DAY = 86_400_000

/** A lease that was granted `age` ms ago. */
const lease = (holder, age = 4_200) => ({ holder, fence: (Date.now() - age) * 1_000, remaining: 1_000 })
const waiter = (holder) => ({ holder, shared: false, age: 1 })
const locked = (leases, waiters = []) => ({ shared: leases.length > 1, leases, waiters, waiting: 0 })

describe('contention', () => {
  test('the message has times in readable units', () => {
    for (const [age, words] of [
      [430, /^held by "web-2" for 43\d ms$/],
      [4_200, /^held by "web-2" for 4\.2 s$/],
      [200_000, /^held by "web-2" for 3 m 20 s$/],
      [2 * DAY, /^held by "web-2" for 48 h 0 m$/],
    ]) {
      const { words: message, heldFor } = contentionOf(CALLER, locked([lease('web-2', age)]), undefined)
      assert.match(message, words)
      assert.ok(heldFor >= age - 1 && heldFor < age + 9, `${heldFor} ms`)
    }
  })

  test('the message has no time if the clock of the store is ahead, or for a quorum', () => {
    const ahead = contentionOf(CALLER, locked([lease('web-2', -50)]), undefined)
    assert.deepEqual(ahead, { words: 'held by "web-2"', waiters: 0, holder: 'web-2' })
    const quorum = contentionOf({ ...CALLER, isQuorum: true }, locked([lease('web-2')]), undefined)
    assert.deepEqual(quorum, { words: 'held by "web-2"', waiters: 0, holder: 'web-2' })
    // Clients reserve fences in blocks, so the fence of a new lease may be slightly ahead of the
    // clock.
    const fresh = contentionOf(CALLER, locked([lease('web-2', -1)]), undefined)
    assert.deepEqual(fresh, { words: 'held by "web-2" for less than 1 ms', waiters: 0, holder: 'web-2', heldFor: 0 })
  })

  test('a lease that is handed over and not taken up has no time, and a free lock has no holder', () => {
    const handed = { holder: 'web-2', fence: null, remaining: 1_000 }
    assert.equal(contentionOf(CALLER, locked([handed]), undefined).words, 'held by "web-2"')
    assert.deepEqual(contentionOf(CALLER, null, undefined), { words: 'held until just now' })
  })

  test('the count has every waiter of this client, and the waiters of other clients in the store', () => {
    const waiters = ['web-1', 'web-2', 'web-2', 'web-3'].map(waiter)
    const count = (waiting) => contentionOf(CALLER, locked([lease('web-2')], waiters), { fences: [], waiting }).waiters
    assert.deepEqual([count(0), count(1), count(5)], [4, 4, 8])
    const foreign = { holder: null, fence: null, remaining: null }
    const { words } = contentionOf(CALLER, locked([foreign], waiters), undefined)
    assert.equal(words, 'held by a client of another library; 4 others wait')
  })

  test('the message escapes and shortens names', () => {
    const { words, holder } = contentionOf(CALLER, locked([lease('\u001b[2J"\u202e')]), undefined)
    assert.match(words, /^held by "\\u001b\[2J\\"\\u202e" for /)
    assert.equal(holder, '\u001b[2J"\u202e')
    assert.ok(contentionOf(CALLER, locked([lease('x'.repeat(255))]), undefined).words.length < 120)
  })
})
