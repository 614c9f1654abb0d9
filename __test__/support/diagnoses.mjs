// What diagnose() finds, looked at by tests.

import assert from 'node:assert/strict'
import { inspect } from 'node:util'
import { createLockClient } from 'leasehold'
import { atEnd } from './endings.mjs'

/** A password that no diagnosis may show. */
export const SECRET = 'hunter2-is-a-secret'
/** What every server here has, that keeps nothing. */
export const USUAL = ['persistence']

/** What a client with those `options` finds at `store`: of the right form, and without the password. */
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

/** The finding of that code, beside which there are only those of `others`. */
export function only({ findings }, code, others = USUAL) {
  const unexpected = findings.filter((finding) => finding.code !== code && !others.includes(finding.code))
  assert.deepEqual(unexpected, [])
  const found = findings.filter((finding) => finding.code === code)
  assert.equal(found.length, 1, `${code}: ${inspect(findings)}`)
  return found[0]
}
