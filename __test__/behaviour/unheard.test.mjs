// Errors that no 'error' listener receives: the first one of each emitter is a process warning.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { createLockClient, createLockWorker } from 'leasehold'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { warningsOf } from '../support/warnings.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const CODE = 'LEASEHOLD_UNHEARD_ERROR'
const SECRET = 'hunter2'
const EACH_SECOND = '* * * * * *'

function open(t, store = 'memory:unheard') {
  const locks = createLockClient(store)
  atEnd(t, () => locks.close())
  return locks
}

/** Starts a worker whose every `startWork` fails. Returns { worker, failures }. */
function startFailing(t, key, fail, options = {}) {
  const failures = { count: 0 }
  const worker = createLockWorker({
    store: 'memory:unheard',
    key,
    retryInterval: 5,
    startWork() {
      failures.count++
      throw fail()
    },
    ...options,
  })
  atEnd(t, () => worker.stop())
  return { worker: worker.start(), failures }
}

/** Causes an error that only the client's 'error' event can report. */
const cause = (locks, error) =>
  new Promise((resolve) => {
    locks.withLock('unheard', (_, lease, done) => {
      done(error)
      resolve(lease)
    })
  }).then((lease) => until('the release', () => !lease.isHeld))

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

describe('unheard errors', { timeout: 60_000 }, () => {
  test('a failing startWork causes one warning, which names the worker, the failure and what to do', async (t) => {
    const warnings = warningsOf(t, CODE)
    const error = new Error('no mail server')
    const { failures } = startFailing(t, 'mail-queue', () => error)
    await until('several failures', () => failures.count >= 3)
    assert.equal(warnings.length, 1)
    const [{ name, code, message, detail, cause }] = warnings
    assert.deepEqual([name, code, cause], ['LeaseholdWarning', CODE, error])
    assert.equal(
      message,
      "The worker of lock \"mail-queue\" has no 'error' listener: add worker.on('error', (error) => …). " +
        'Without one, only its first error is shown: startWork failed: Error: no mail server',
    )
    assert.equal(detail, error.stack, 'the detail shows where the error was thrown')
  })

  test('a failing stopWork that rejects with a text causes a warning', async (t) => {
    const warnings = warningsOf(t, CODE)
    const worker = createLockWorker({
      store: 'memory:unheard',
      key: 'stops',
      startWork() {},
      stopWork: () => Promise.reject('a text'),
    })
    const acquired = once(worker, 'acquired')
    worker.start()
    await acquired
    await worker.stop()
    await until('a warning', () => warnings.length === 1)
    assert.match(warnings[0].message, /"stops".*shown: stopWork failed: Error: what was thrown is not.*"a text"$/)
  })

  test('the warning of a worker whose store is down names the store without its password', async (t) => {
    const warnings = warningsOf(t, CODE)
    const port = await freePort()
    const store = `redis://:${SECRET}@127.0.0.1:${port}`
    const worker = createLockWorker({ store, key: 'reports', retryInterval: 5, startWork() {} }).start()
    atEnd(t, () => worker.stop())
    await until('a warning', () => warnings.length > 0)
    const [{ message, detail, stack, cause }] = warnings
    assert.match(message, new RegExp(`"reports".*: StoreUnavailableError: redis://127\\.0\\.0\\.1:${port} `))
    for (const text of [message, detail, stack, cause.stack]) assert.ok(!text.includes(SECRET), text)
  })

  test('the warning of a client names its store without its password', async (t) => {
    const warnings = warningsOf(t, CODE)
    await cause(open(t, 'memory:un\u001bheard'), new Error('a mistake'))
    await until('a warning', () => warnings.length === 1)
    assert.match(
      warnings[0].message,
      /^The client of memory:un\\u\{1b\}heard has no 'error' listener: add client\.on\('error', /,
    )
    assert.match(warnings[0].message, /: Error: a mistake$/)
    const port = await freePort()
    const locks = open(t, `redis://u:${SECRET}@127.0.0.1:${port}/3`)
    locks.withLock('k', { wait: 0 }, (error, _, done) => done(error))
    await until('the other warning', () => warnings.length === 2)
    assert.match(warnings[1].message, new RegExp(`^The client of redis://u@127\\.0\\.0\\.1:${port}/3 has`))
    assert.doesNotMatch(warnings[1].message, new RegExp(SECRET))
  })

  test('a failing job causes one warning of its schedule, and none of its client', async (t) => {
    const warnings = warningsOf(t, CODE)
    const locks = open(t)
    let runs = 0
    const schedule = locks.schedule('nightly', EACH_SECOND, () => {
      runs++
      throw new Error('no mail server')
    })
    await until('two runs', () => runs === 2)
    await schedule.stop()
    assert.equal(warnings.length, 1)
    assert.match(
      warnings[0].message,
      /^The schedule "nightly" has no 'error' listener: add schedule\.on\('error', .*: the tick \d{4}-.*Z failed: Error: no/,
    )
    await cause(locks, new Error('a mistake'))
    await until('the warning of the client', () => warnings.length === 2)
    assert.match(warnings[1].message, /^The client of /)
  })

  test("the warning about missed ticks names the event 'missed'", async (t) => {
    const warnings = warningsOf(t, CODE)
    const locks = open(t, `redis://:${SECRET}@127.0.0.1:${await freePort()}`)
    locks.schedule('nightly', EACH_SECOND, () => assert.fail('the job ran without a lock'))
    await until('a warning', () => warnings.length > 0)
    assert.match(warnings[0].message, /^The schedule "nightly" has no 'missed' listener: add schedule\.on\('missed', /)
    assert.match(warnings[0].message, /: the tick \d{4}-.*Z was missed: StoreUnavailableError: /)
    assert.doesNotMatch(`${warnings[0].message}${warnings[0].detail}`, new RegExp(SECRET))
  })

  test('an error causes no warning if the emitter or the client of a schedule has a listener', async (t) => {
    const warnings = warningsOf(t, CODE)
    const { worker, failures } = startFailing(t, 'heard', () => new Error('heard'))
    const errors = []
    worker.on('error', (error) => errors.push(error.message))
    const locks = open(t)
    locks.on('error', (error) => errors.push(error.message))
    const schedule = locks.schedule('heard', EACH_SECOND, () => Promise.reject(new Error('of the schedule')))
    await until('the failures', () => failures.count >= 2 && errors.includes('of the schedule'))
    await schedule.stop()
    await cause(locks, new Error('of the client'))
    await until('the error of the client', () => errors.includes('of the client'))
    await nextTurn()
    assert.deepEqual(warnings, [])
  })

  test('a listener that is added after the warning receives the later errors', async (t) => {
    const warnings = warningsOf(t, CODE)
    const { worker, failures } = startFailing(t, 'later', () => new Error('again'))
    await until('a warning', () => warnings.length === 1)
    const [error] = await within('an error', new Promise((resolve) => worker.once('error', (...args) => resolve(args))))
    assert.equal(error.message, 'again')
    const before = failures.count
    await until('more failures', () => failures.count >= before + 3)
    assert.equal(warnings.length, 1)
  })

  test('each emitter has its own warning', async (t) => {
    const warnings = warningsOf(t, CODE)
    for (const key of ['a', 'b']) startFailing(t, key, () => new Error('x'))
    await until('both warnings', () => warnings.length === 2)
    assert.deepEqual(warnings.map(({ message }) => /lock "(.)"/.exec(message)[1]).sort(), ['a', 'b'])
  })

  for (const [what, replacement] of [
    [
      'throws',
      () => {
        throw new Error('emitWarning')
      },
    ],
    ['rejects', () => Promise.reject(new Error('emitWarning'))],
    ['is missing', undefined],
  ]) {
    test(`the worker goes on if process.emitWarning ${what}`, async (t) => {
      const { emitWarning } = process
      const rejections = []
      const note = (reason) => rejections.push(reason)
      process.on('unhandledRejection', note)
      let calls = 0
      process.emitWarning =
        replacement &&
        ((...args) => {
          calls++
          return replacement(...args)
        })
      atEnd(t, () => {
        process.emitWarning = emitWarning
        process.off('unhandledRejection', note)
      })
      const { worker, failures } = startFailing(t, `broken ${what}`, () => new Error('boom'))
      await until('several failures', () => failures.count >= 3)
      await worker.stop()
      assert.deepEqual([calls, rejections, worker.state], [replacement ? 1 : 0, [], 'idle'])
    })
  }

  test('the warning hides passwords, escapes control characters, and survives getters that throw', async (t) => {
    const warnings = warningsOf(t, CODE)
    const url = `connect postgres://admin:${SECRET}@db:5432/x?password=${SECRET}&a=1`
    startFailing(t, 'a', () => new Error(url))
    await until('a warning', () => warnings.length === 1)
    const [{ message, detail }] = warnings
    assert.match(message, /: Error: connect postgres:\/\/…@db:5432\/x\?password=…&a=1$/)
    assert.ok(!detail.includes(SECRET), detail)
    assert.match(detail, /unheard\.test\.mjs/)
    const long = `\u001b[2J redis://:${SECRET}${'x'.repeat(900)}@h ${'a://'.repeat(1_000_000)}`
    startFailing(t, 'b', () => new Error(long))
    await until('a warning', () => warnings.length === 2)
    for (const text of [warnings[1].message, warnings[1].detail]) {
      assert.ok(!text.includes('\u001b') && !text.includes(SECRET), text)
      assert.ok(text.length < 10_000, `${text.length} characters`)
    }
    const hostile = Object.defineProperty(new Error('x'), 'message', {
      get() {
        throw new Error('a getter')
      },
    })
    startFailing(t, 'c', () => hostile)
    await until('a warning', () => warnings.length === 3)
    assert.match(warnings[2].message, /"c".*: startWork failed: an error without a readable message$/)
  })

  test('the warning hides a password in a thrown value that is no error, even if it cuts the text', async (t) => {
    const warnings = warningsOf(t, CODE)
    for (const [index, thrown] of [
      `${'x '.repeat(90)}redis://:${SECRET}${'y'.repeat(50)}@h`,
      { message: `${'x '.repeat(90)}redis://:${SECRET}${'y'.repeat(50)}@h` },
      { code: `redis://:${SECRET}${'y'.repeat(300)}@h` },
    ].entries()) {
      startFailing(t, `thrown ${index}`, () => thrown)
      await until('a warning', () => warnings.length === index + 1)
      const { message, detail } = warnings[index]
      assert.match(message, /what was thrown is not an Error, but /)
      for (const text of [message, detail]) assert.ok(!text.includes(SECRET), text)
    }
  })

  test('the warning is printed once, and does not keep the process alive', async () => {
    const script = `
      const { createLockClient, createLockWorker } = require('leasehold')
      const locks = createLockClient('memory:printed')
      const fail = () => { throw new Error('boom') }
      const worker = createLockWorker({ client: locks, key: 'mail', retryInterval: 5, startWork: fail }).start()
      let failures = 0
      worker.on('state', (state) => {
        if (state === 'pausing' && ++failures === 5) worker.stop()
      })`
    const { stdout, stderr } = await promisify(execFile)(process.execPath, ['-e', script], {
      cwd: ROOT,
      env: { ...process.env, NODE_OPTIONS: '', NODE_TEST_CONTEXT: undefined },
      timeout: 30_000,
    })
    assert.equal(stdout, '')
    const lines = stderr.split('\n').filter((line) => line.includes(CODE))
    assert.equal(lines.length, 1, stderr)
    assert.match(lines[0], /^\(node:\d+\) \[LEASEHOLD_UNHEARD_ERROR\] LeaseholdWarning: The worker of lock "mail" has/)
    assert.match(stderr, /^Error: boom\n {4}at /m)
  })
})
