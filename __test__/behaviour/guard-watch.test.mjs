// The rules by which the guard of `leasehold run` notices that leasehold is stopped.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'

const require = createRequire(import.meta.url)
const { GuardWatch } = require('../../dist/cli/guard-watch.js')
const { decode, decodeReport, encode, encodeReport } = require('../../dist/cli/takeover.js')

const [yes, no] = [() => true, () => false]
const never = () => assert.fail('looked too early')
/** A watch over a lock with a ttl of 12 s. At 100 s, the lock is safe until 105 s. */
const watch = (report = {}) => new GuardWatch(12_000, { safe: 105_000, isAsked: false, ...report })

describe('the guard of leasehold run', () => {
  test('first looks when the lock is safe for 1 s more, and ends the command if leasehold is stopped', () => {
    assert.equal(watch().pause(100_000), 4_000)
    assert.equal(watch().mustEnd(103_999, never, never), false)
    assert.equal(watch().mustEnd(104_000, yes, no), true)
  })

  test('looks again while leasehold runs and does not renew', () => {
    assert.equal(watch().mustEnd(104_000, no, never), false)
    assert.equal(watch().pause(104_000), 100)
    assert.equal(watch().pause(109_000), 100)
    assert.equal(watch().mustEnd(109_000, yes, no), true)
  })

  test('counts from the last renewal', () => {
    const renewed = watch()
    renewed.renewed({ safe: 109_000, isAsked: false })
    assert.equal(renewed.pause(104_000), 4_000)
    assert.equal(renewed.mustEnd(107_999, never, never), false)
    assert.equal(renewed.report.safe, 109_000)
  })

  test('with a short ttl, ends the command when half of the ttl is left', () => {
    const short = new GuardWatch(3_000, { safe: 101_000, isAsked: false })
    assert.equal(short.pause(100_000), 500)
    assert.equal(short.mustEnd(100_500, yes, no), true)
  })

  test('spares the processes that a command left behind, unless the command was asked to end', () => {
    const exited = watch()
    assert.equal(exited.hasExited, false)
    assert.equal(exited.mustEnd(104_000, yes, yes), false)
    assert.equal(exited.hasExited, true, 'forgot it: leasehold may be killed next')
    exited.renewed({ safe: 109_000, isAsked: true })
    assert.equal(exited.hasExited, false)
    assert.equal(exited.mustEnd(109_000, yes, yes), true)
  })

  test('a command that was asked to end stays asked, even if an older report arrives later', () => {
    const asked = watch()
    asked.renewed({ safe: 109_000, isAsked: true })
    asked.renewed({ safe: 108_000, isAsked: false })
    assert.equal(asked.mustEnd(108_000, yes, yes), true)
  })

  test('never looks without /proc', () => {
    assert.equal(watch({ safe: undefined }).pause(100_000), undefined)
    assert.equal(watch({ safe: undefined }).mustEnd(200_000, never, never), false)
  })

  test('reads the reports and takeovers that leasehold writes', () => {
    for (const safe of [undefined, 1, 105_000])
      for (const isAsked of [false, true])
        assert.deepEqual(decodeReport(encodeReport({ safe, isAsked })), { safe, isAsked })
    const takeover = { ticket: { key: 'a b\n', token: 't', fence: 1, ttl: 1, most: 1 }, grace: 0, command: { pid: 2 } }
    assert.match(encode(takeover), /^[\w-]+$/)
    assert.deepEqual(decode(encode(takeover)), takeover)
  })
})
