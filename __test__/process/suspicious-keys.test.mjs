// A key with a value that is not set, such as `order:undefined`, makes unrelated calls share one
// lock. A process warns of the first such key.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { startChild } from '../support/child.mjs'
import { run } from '../support/cli.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'
import { warningsOf } from '../support/warnings.mjs'

const CODE = 'LEASEHOLD_SUSPICIOUS_KEY'

const CALLS = [
  'acquire',
  'tryAcquire',
  'withLock',
  'several keys',
  'semaphore',
  'read/write lock',
  'once, key',
  'once, id',
  'schedule',
  'worker',
  'lockRequest',
]

/** Returns the client of a test in this process. */
function clientOf(t) {
  const locks = createLockClient(`memory:${t.name.slice(0, 20).replaceAll(' ', '-')}`)
  atEnd(t, () => locks.close())
  return locks
}

describe('process: suspicious keys', { timeout: 120_000 }, () => {
  for (const call of CALLS) {
    test(`a warning of ${call}`, async (t) => {
      const child = startChild(t, 'suspicious-key.mjs', { call })
      const { warnings } = await child.next('done')
      assert.deepEqual(
        warnings.map(({ code }) => code),
        [CODE],
      )
      const [{ message }] = warnings
      const shown = call === 'once, id' ? 'user-undefined' : 'order:undefined'
      assert.ok(message.startsWith(`A part of the key "${shown}" is "undefined". `), message)
    })
  }

  test('a warning of leasehold run', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const words = ['run', 'order:undefined', '--store', store, '--', process.execPath, '-e', '0']
    const { code, stderr } = await run(t, words)
    assert.equal(code, 0, stderr)
    assert.match(stderr, /\[LEASEHOLD_SUSPICIOUS_KEY\] LeaseholdWarning: A part of the key "order:undefined"/)
  })

  test('keys that only look similar cause no warning', async (t) => {
    const warnings = warningsOf(t, CODE)
    const locks = clientOf(t)
    const keys = [
      'nullable:1',
      'order:nullify',
      'undefined2',
      'nan',
      'banNaNa',
      'x:NULL',
      'k:[object Objects]',
      '',
      ' ',
    ].map((part) => `order:1${part}`)
    for (const key of ['annulled', 'not-undefinedx', ...keys]) await (await locks.acquire(key)).release()
    await new Promise(setImmediate)
    assert.deepEqual(warnings, [])
  })

  test('the first key with each text causes a warning that names the key and a probable cause', async (t) => {
    const warnings = warningsOf(t, CODE)
    const locks = clientOf(t)
    const CAUSES = {
      'undefined:order': 'a value that is not set',
      'order|null|7': 'a value that is not set',
      'order/NaN': 'a value that is not a number',
      'order [object Object]': 'an object in place of its id',
    }
    for (const key of Object.keys(CAUSES)) {
      for (const again of [key, `${key}.2`]) {
        const lease = await locks.acquire(again)
        assert.equal(lease.isHeld, true)
        await lease.release()
      }
    }
    await new Promise(setImmediate)
    assert.equal(warnings.length, 4)
    for (const [i, [key, cause]] of Object.entries(CAUSES).entries()) {
      const text = /undefined|null|NaN|\[object Object\]/.exec(key)[0]
      assert.equal(
        warnings[i].message,
        `A part of the key "${key}" is "${text}". Probably, ${cause} was put into the key, so different calls share this lock. ` +
          'Check the value before the call; `node --trace-warnings` shows where the call is. ' +
          `Only the first key with "${text}" is shown`,
      )
    }
    assert.match(warnings[0].stack, /suspicious-keys\.test\.mjs/)
    assert.doesNotMatch(warnings[0].stack, /diagnostics.warning/)
  })
})
