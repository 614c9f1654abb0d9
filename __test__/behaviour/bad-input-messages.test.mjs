// What the messages about bad arguments and options say.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { timed } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { noop, TICKET, ticket, withoutCall } from '../support/refusals.mjs'

const worker = { store: 'memory:x', key: 'k', startWork: noop }

describe('bad input: the message for a duration that is not a number', () => {
  const number = /^The "(\w+)" argument must be a number of milliseconds\. Received type string$/
  const orInfinity = /^The "(\w+)" argument must be a number of milliseconds, or Infinity\. Received type string$/
  for (const [name, pattern, call] of [
    ['ttl', number, (locks) => locks.acquire('k', { ttl: '10s' })],
    ['wait', orInfinity, (locks) => locks.acquire('k', { wait: '10s' })],
    ['maxHold', number, (locks) => locks.tryAcquire('k', { maxHold: '10s' })],
    ['minDelay', number, (locks) => locks.acquire('k', { retry: { minDelay: '1s' } })],
    ['keep', number, (locks) => locks.once('k', 'id', noop, { keep: '1h' })],
    ['catchUp', number, (locks) => locks.schedule('n', '@daily', noop, { catchUp: '1h' })],
    ['ttl', number, () => createLockClient({ store: 'memory:x', ttl: '10s' })],
    ['storeTimeout', number, () => createLockClient({ store: 'memory:x', storeTimeout: '1s' })],
    ['maxStall', orInfinity, () => createLockClient({ store: 'memory:x', maxStall: '1m' })],
    ['retryInterval', number, () => createLockWorker({ ...worker, retryInterval: '5s' })],
    ['stopTimeout', orInfinity, () => createLockWorker({ ...worker, stopTimeout: '5s' })],
  ]) {
    test(`${name}: ${call}`, async (t) => {
      const locks = createLockClient('memory:bad-input')
      atEnd(t, () => locks.close())
      const { error } = await timed(async () => call(locks))
      assert.equal(pattern.exec(withoutCall(error.message, call))?.[1], name, error.message)
    })
  }
})

describe('bad input: the message suggests a known option for an unknown one', () => {
  const inClient = (option) => createLockClient({ store: 'memory:x', [option]: 1 })
  const inAcquire = (option) => createLockClient('memory:x').acquire('k', { [option]: 1 })
  const inWorker = (option) => createLockWorker({ ...worker, [option]: 1 })
  for (const [given, meant, call] of [
    ['urll', 'store', inClient],
    ['url', 'store', inClient],
    ['tll', 'ttl', inClient],
    ['pasword', 'password', inClient],
    ['maxstall', 'maxStall', inClient],
    ['tll', 'ttl', inAcquire],
    ['maxhold', 'maxHold', inAcquire],
    ['timout', 'wait', inAcquire],
    ['singal', 'signal', inAcquire],
    ['statWork', 'startWork', inWorker],
    ['retryIntervall', 'retryInterval', inWorker],
  ]) {
    test(`${given}: ${meant}`, async () => {
      const { error } = await timed(async () => call(given))
      assert.equal(withoutCall(error.message, call), `Unknown option "${given}"; did you mean "${meant}"?`)
    })
  }

  test('Passw0rd: the message suggests password, and hides the name', () => {
    assert.throws(() => inClient('Passw0rd'), {
      message: 'createLockClient(): Unknown option; did you mean "password"?',
    })
  })

  for (const [given, known, call] of [
    ['colour', /^"store", "username", .*"ttl", .*"releaseOnSignal"$/, inClient],
    ['tmp', /^"ttl", "signal", .*"wait"/, inAcquire],
    ['x', /"startWork"/, inWorker],
    // These names may be passwords.
    ['hunter2', /^"store", /, inClient],
    ['correct-horse', /^"store", /, inClient],
  ]) {
    test(`${given}: the message lists the known options, and hides the name`, async () => {
      const { error } = await timed(async () => call(given))
      const [, names] = /: Unknown option; the options are (.*)$/.exec(error.message) ?? assert.fail(error.message)
      assert.match(names, known)
    })
  }
})

describe('bad input: messages', () => {
  const unknown = (option, why) => `Unknown option "${option}"${why}`
  const noOption = 'Unknown option; the options are "ttl", "signal", "autoRenew", "maxHold"'
  const noFunction = (given) => `The "fn" argument must be of type function. Received ${given}`
  const noZone = (given) =>
    `The "timeZone" option must be the name of a time zone, such as "Europe/Berlin" or "UTC". Received "${given}"`
  const inZone = (timeZone) => (locks) => locks.schedule('n', '@daily', noop, { timeZone })
  for (const [call, message] of [
    [(locks) => locks.tryAcquire('k', { wait: 5 }), unknown('wait', ': tryAcquire() never waits, acquire() does')],
    [
      (locks) => locks.semaphore('k', 2).tryAcquire({ wait: 5 }),
      unknown('wait', ': tryAcquire() never waits, acquire() does'),
    ],
    [
      (locks) => locks.tryAcquire(['a', 'b'], { retry: true }),
      unknown('retry', ': tryAcquire() tries once, acquire() tries again'),
    ],
    [(locks) => locks.adopt(ticket(TICKET), { wait: 5 }), noOption],
    [(locks) => locks.tryAcquire('k', { tll: 5 }), unknown('tll', '; did you mean "ttl"?')],
    [(locks) => locks.tryAcquire('k', { toString: 5 }), noOption],
    [(locks) => locks.withLock('k', 5), noFunction('type number')],
    [(locks) => locks.withLock('k', null), noFunction('null')],
    [(locks) => locks.withLock('k', Promise.resolve()), noFunction('a promise: give the function, and do not call it')],
    [(locks) => locks.withLock('k', { ttl: 50 }), noFunction('undefined')],
    [(locks) => locks.withLock('k', { ttl: 50 }, 5), noFunction('type number')],
    [(locks) => locks.withLock('k'), noFunction('undefined')],
    [(locks) => locks.semaphore('k', 2).withLock('5'), noFunction('type string')],
    [inZone('Mars/Olympus'), noZone('Mars/Olympus')],
    [inZone('a"\nb'), noZone('a\\"\\nb')],
    [inZone('z'.repeat(200)), noZone(`${'z'.repeat(79)}…`)],
  ]) {
    test(`${call}: ${message}`, async (t) => {
      const locks = createLockClient('memory:bad-input')
      atEnd(t, () => locks.close())
      const { error } = await timed(async () => call(locks))
      assert.equal(withoutCall(error.message, call), message)
    })
  }
})

test('bad input: the message for a keep below the ttl gives both values and the reason', async (t) => {
  const locks = createLockClient({ store: 'memory:bad-input', ttl: 3_000 })
  atEnd(t, () => locks.close())
  const why = /"keep" .*must be at least "ttl", 3000 ms: .*remembered by its lease.* Received 2999 ms$/
  await assert.rejects(locks.once('k', 'id', noop, { keep: 2_999 }), why)
})
