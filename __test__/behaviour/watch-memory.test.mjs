// Checks what `leasehold watch` remembers of listings that are not complete.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { mock, test } from 'node:test'
import { CLI } from '../support/cli.mjs'

const { teller } = createRequire(import.meta.url)(join(CLI, '..', 'watch.js'))

const lock = (key) => ({ key, leases: [{ holder: 'h', fence: 1 }], waiters: [] })
const locks = (prefix, count) => Array.from({ length: count }, (_, i) => lock(`${prefix}${i}`))

/** Returns the key of each line that the teller prints for the listings. */
function told(t, listings) {
  const lines = []
  const write = mock.method(process.stdout, 'write', (text) => lines.push(text))
  try {
    const tell = teller(true)
    for (const locks of listings) tell({ locks, complete: false })
  } finally {
    write.mock.restore()
  }
  t.diagnostic(`${lines.length} lines`)
  return lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line).key)
}

test('a lock that other locks hid from a listing for a short time is not printed again', (t) => {
  const keys = told(t, [[lock('a')], locks('b', 5_000), [lock('a')]])
  assert.equal(keys.filter((key) => key === 'a').length, 1)
})

test('if a store always has new locks, watch does not remember all of them', (t) => {
  const keys = told(t, [[lock('a')], locks('b', 6_000), locks('c', 6_000), [lock('z')], [lock('a')]])
  assert.equal(keys.filter((key) => key === 'a').length, 2)
  const long = 'x'.repeat(1_000)
  const few = told(t, [[lock('a')], locks(`b${long}`, 3_000), locks(`c${long}`, 3_000), [lock('z')], [lock('a')]])
  assert.equal(few.filter((key) => key === 'a').length, 2)
})
