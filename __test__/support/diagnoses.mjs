// Runs diagnose(), and checks its findings.

import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { createLockClient } from 'leasehold'
import { atEnd } from './endings.mjs'

/** A password that no diagnosis may show. */
export const SECRET = 'hunter2-is-a-secret'
/** The findings of every server here, because none keeps its data. */
export const USUAL = ['persistence']

/**
 * Returns the findings of a client with those `options` at `store`. Checks their form, and that
 * they don't show the password.
 */
export async function diagnose(t, store, options = {}) {
  const locks = createLockClient({ store, storeTimeout: 2_000, ...options })
  atEnd(t, () => locks.close())
  const found = await locks.diagnose()
  assert.ok(!inspect(found, { depth: 9 }).includes(SECRET))
  for (const { level, code, message } of found.findings) {
    assert.ok(['info', 'warning', 'error'].includes(level), level)
    assert.match(code, /^[a-z-]+$/)
    assert.ok(message.length > 20, message)
  }
  assert.equal(found.ok, !found.findings.some(({ level }) => level !== 'info'))
  return found
}

/**
 * Returns the finding of that code. Fails if there are other findings, except those of `others`.
 */
export function only({ findings }, code, others = USUAL) {
  const unexpected = findings.filter((finding) => finding.code !== code && !others.includes(finding.code))
  assert.deepEqual(unexpected, [])
  const found = findings.filter((finding) => finding.code === code)
  assert.equal(found.length, 1, `${code}: ${inspect(findings)}`)
  return found[0]
}
