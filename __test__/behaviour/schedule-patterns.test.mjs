// Schedules with one name and different patterns, in two clients of one process.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLockClient } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { overStores } from '../support/stores.mjs'
import { warningsOf } from '../support/warnings.mjs'

const CODE = 'LEASEHOLD_SCHEDULE_PATTERNS'
const noop = () => {}

/** Resolves when Node has emitted the warnings of earlier calls. */
const emitted = () => new Promise((resolve) => setImmediate(resolve))

overStores('schedules with one name', (store) => {
  test('a second client with another pattern is one warning', async (t) => {
    const [a, b, c] = [store.client(t), store.client(t), store.client(t)]
    const name = store.key()
    const warnings = warningsOf(t, CODE)
    a.schedule(name, '0 3 * * *', noop)
    b.schedule(name, '0 4 * * *', noop, { timeZone: 'Europe/Berlin' })
    c.schedule(name, '0 5 * * *', noop)
    await emitted()
    assert.deepEqual(
      warnings.map(({ name: kind, message }) => [kind, message]),
      [
        [
          'LeaseholdWarning',
          `Two clients of this process have a schedule "${name}" with different patterns: "0 3 * * *" (UTC) and ` +
            '"0 4 * * *" (Europe/Berlin). All schedules of one name are one job, which now runs at the ticks of both: ' +
            'use the same pattern and time zone, or a name for each job',
        ],
      ],
    )
    // Not even the property `cause`: there is no error.
    assert.equal('cause' in warnings[0], false)
  })

  test('another time zone is another pattern', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const name = store.key()
    const warnings = warningsOf(t, CODE)
    a.schedule(name, '0 3 * * *', noop)
    b.schedule(name, '0 3 * * *', noop, { timeZone: 'Europe/Berlin' })
    await emitted()
    assert.equal(warnings.length, 1)
  })

  test('another spelling of the same ticks is no warning', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const warnings = warningsOf(t, CODE)
    for (const [first, second, one = 'UTC', other = one] of [
      ['00 3 * * *', '0 3 * * *'],
      ['0 0 3 * * *', '0 3 * * *'],
      ['@daily', '0 0 * * *'],
      ['0 3 * * 1', '0 3 * * MON'],
      ['0 4 * * *', '0 3 * * *', 'Africa/Lagos', 'UTC'],
    ]) {
      const name = store.key()
      a.schedule(name, first, noop, { timeZone: one })
      b.schedule(name, second, noop, { timeZone: other })
    }
    await emitted()
    assert.deepEqual(warnings, [])
  })

  test('patterns whose ticks differ only in another season are one warning', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    for (const now of ['2026-01-10T12:00:00Z', '2026-07-10T12:00:00Z']) {
      const clock = t.mock.method(Date, 'now', () => Date.parse(now))
      const name = store.key()
      const warnings = warningsOf(t, CODE)
      a.schedule(name, '0 3 * * *', noop, { timeZone: 'Europe/London' })
      b.schedule(name, now.includes('-01-') ? '0 3 * * *' : '0 2 * * *', noop)
      clock.mock.restore()
      await emitted()
      assert.equal(warnings.length, 1, now)
    }
  })

  test('patterns are compared whole, and each job has a warning of its own', async (t) => {
    const [a, b] = [store.client(t), store.client(t)]
    const elsewhere = `memory:${store.key()}`
    const others = [createLockClient(elsewhere), createLockClient(elsewhere)]
    atEnd(t, () => Promise.all(others.map((client) => client.close())))
    const name = store.key()
    const warnings = warningsOf(t, CODE)
    const minutes = Array.from({ length: 50 }, (_, i) => i).join(',')
    a.schedule(name, `${minutes} 3 * * *`, noop)
    b.schedule(name, `${minutes} 4 * * *`, noop)
    await emitted()
    assert.equal(warnings.length, 1)
    // The same name at another store is another job.
    others[0].schedule(name, '0 3 * * *', noop)
    others[1].schedule(name, '0 4 * * *', noop)
    await emitted()
    assert.equal(warnings.length, 2)
  })

  test('there is no warning for the same pattern, another job, or a schedule that has ended', async (t) => {
    const clients = [store.client(t), store.client(t), store.client(t, { prefix: 'other:' })]
    const [a, b, prefixed] = clients
    const [same, first, second] = [store.key(), store.key(), store.key()]
    const elsewhere = createLockClient(`memory:${store.key()}`)
    atEnd(t, () => elsewhere.close())
    const warnings = warningsOf(t, CODE)
    a.schedule(same, '0 3 * * *', noop)
    b.schedule(same, ' 0  3 * * * ', noop, { timeZone: 'Etc/UTC' })
    const weekday = store.key()
    a.schedule(weekday, '0 3 * * MON', noop, { timeZone: 'Europe/Berlin' })
    b.schedule(weekday, '0 3 * * mon', noop, { timeZone: 'europe/berlin' })
    prefixed.schedule(same, '0 4 * * *', noop)
    elsewhere.schedule(same, '0 4 * * *', noop)
    a.schedule(first, '0 3 * * *', noop)
    b.schedule(second, '0 4 * * *', noop)
    await a.schedule('stopped', '0 3 * * *', noop).stop()
    b.schedule('stopped', '0 4 * * *', noop)
    await b.close()
    a.schedule(second, '0 3 * * *', noop)
    await emitted()
    assert.deepEqual(warnings, [])
  })
})
