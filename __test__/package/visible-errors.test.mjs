// The examples show nothing of a store's error message, because it names servers and locks.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createLockClient } from 'leasehold'
import { TooManyJobsError } from '../../examples/shared/jobs.mjs'
import { Live } from '../../examples/shared/live.mjs'
import { within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'

test('a page gets no details of an error of the store', async (t) => {
  const port = await freePort()
  const locks = createLockClient(`redis://127.0.0.1:${port}`)
  atEnd(t, () => locks.close())
  const logged = []
  t.mock.method(console, 'error', (...words) => logged.push(words.map(String).join(' ')))
  const live = new Live(() => locks.inspect('jobs'))
  const event = await within('an event', new Promise((resolve) => live.follow({ write: resolve, end() {} })), 10_000)
  live.close()
  assert.doesNotMatch(event, new RegExp(`127|${port}|redis|jobs`))
  assert.match(JSON.parse(event.replace('data: ', '')).error, /try again/)
  assert.match(logged.join('\n'), new RegExp(`${port}`), 'the log has the details')
})

test('a response shows the message of an expected error, and hides all others', async (t) => {
  const { visible } = await import('../../examples/shared/visible.mjs')
  const log = t.mock.method(console, 'error', () => {})
  const { status, error } = visible(new TooManyJobsError(500))
  assert.deepEqual([status, error.startsWith('500 jobs')], [409, true])
  const ofParser = Object.assign(new Error('request entity too large'), { status: 413, expose: true })
  assert.deepEqual(visible(ofParser), { status: 413, error: 'request entity too large' })
  assert.equal(log.mock.callCount(), 0)
  const secret = [
    new Error('redis://10.0.0.7:6379'),
    Object.assign(new Error('10.0.0.7'), { status: 500, expose: true }),
  ]
  for (const thrown of [...secret, undefined, 'redis://10.0.0.7']) {
    const shown = visible(thrown)
    assert.equal(shown.status, 503)
    assert.doesNotMatch(shown.error, /10\.0\.0\.7/)
  }
  assert.equal(log.mock.callCount(), 4)
})

test('while the store does not reply, a page gets errors, and no other request is sent', async (t) => {
  t.mock.method(console, 'error', () => {})
  let inspections = 0
  const live = new Live(() => {
    inspections += 1
    return new Promise(() => {})
  })
  atEnd(t, () => live.close())
  const events = []
  await within(
    'two events',
    new Promise((resolve) => {
      const write = (event) => events.push(event) === 2 && resolve()
      live.follow({ write, end() {} })
    }),
    10_000,
  )
  for (const event of events) assert.match(JSON.parse(event.replace('data: ', '')).error, /try again/)
  assert.equal(inspections, 1)
})
