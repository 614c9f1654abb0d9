// Checks the messages about mistakes of new users: what was given, where, and what to write
// instead. store-mistakes.test.mjs has the mistakes with the store, and bad-arguments.test.mjs has
// the classes and codes of errors.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { timed, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { withoutCall } from '../support/refusals.mjs'

const noop = () => {}
const worker = { store: 'memory:mistakes', key: 'k', startWork: noop }
const key = (given) => `The "key" argument must be of type string, or an array of strings. Received ${given}`
const fn = (given) => `The "fn" argument must be of type function. Received ${given}`
const options = (name, given) => `The "options" argument must be an object, such as { ${name}: … }. Received ${given}`
const cron = (given) => `The "cron" argument must be a cron pattern, such as "0 3 * * *". Received ${given}`
const unknown = (name, meant) => `Unknown option "${name}"; did you mean "${meant}"?`

/** [what, what to call with a fresh client, the message] */
const MISTAKES = [
  ['the key is a promise', (locks) => locks.acquire(Promise.resolve('k')), key('a promise: await it first')],
  [
    'forceRelease: a lease',
    async (locks) => locks.forceRelease(await locks.acquire('k')),
    'The "key" argument must be of type string. Received an instance of Lease: pass its key',
  ],
  [
    'forceRelease: several keys',
    (locks) => locks.forceRelease(['a', 'b']),
    'The "key" argument must be of type string. Received an array: pass one key',
  ],
  [
    'acquire: a lease',
    async (locks) => locks.acquire(await locks.acquire('k')),
    key('an instance of Lease: pass its key'),
  ],
  ['withLock: no key', (locks) => locks.withLock(noop), key('a function: the key comes before it')],
  [
    'withLock: the key after the function',
    (locks) => locks.withLock(noop, 'k'),
    key('a function: the key comes before it'),
  ],
  [
    'withLock: the options after the function',
    (locks) => locks.withLock('k', noop, { ttl: 500 }),
    fn('options: they come before the function'),
  ],
  [
    'withLock of a semaphore: the options after the function',
    (locks) => locks.semaphore('k', 2).withLock(noop, { ttl: 500 }),
    fn('options: they come before the function'),
  ],
  [
    'withLock: the function was called',
    (locks) => locks.withLock('k', (async () => {})()),
    fn('a promise: give the function, and do not call it'),
  ],
  ['acquire: a number instead of options', (locks) => locks.acquire('k', 5_000), options('ttl', 'type number')],
  [
    'acquire: a promise instead of options',
    (locks) => locks.acquire('k', Promise.resolve({})),
    options('ttl', 'a promise: await it first'),
  ],
  [
    'acquire: a map instead of options',
    (locks) => locks.acquire('k', new Map([['ttl', 50]])),
    options('ttl', 'an instance of Map'),
  ],
  ['close: a number instead of options', (locks) => locks.close(5_000), options('drain', 'type number')],
  ['list: a pattern instead of options', (locks) => locks.list('a*'), options('pattern', 'type string')],
  [
    'signal: the controller',
    (locks) => locks.acquire('k', { signal: new AbortController() }),
    'The "signal" argument must be an AbortSignal. Received an AbortController: give its signal',
  ],
  [
    'once: the options before the function',
    (locks) => locks.once('k', 'id', { keep: 20_000 }, noop),
    fn('options: they come after the function'),
  ],
  ['schedule: no name', (locks) => locks.schedule('0 3 * * *', noop), cron('type function')],
  ['schedule: the function before the pattern', (locks) => locks.schedule('n', noop, '@daily'), cron('type function')],
  ['schedule: an interval', (locks) => locks.schedule('n', 60_000, noop), cron('type number')],
  [
    'adopt: a lease',
    async (locks) => locks.adopt(await locks.acquire('k')),
    'The "ticket" argument must be the string that lease.detach() resolves with. Received an instance of Lease',
  ],
  [
    'tls: true',
    () => createLockClient({ store: 'rediss://h', tls: true }),
    'The "tls" argument must be an object, such as { ca: … }; for TLS alone write rediss:// and leave it out. Received type boolean',
  ],
  [
    'releaseOnSignal: true',
    () => createLockClient({ store: 'memory:mistakes', releaseOnSignal: true }),
    'The "releaseOnSignal" argument must be an array of signal names, such as [\'SIGTERM\']. Received type boolean',
  ],
  ['client: pass', () => createLockClient({ store: 'redis://h', pass: 'x' }), unknown('pass', 'password')],
  ['client: user', () => createLockClient({ store: 'redis://h', user: 'x' }), unknown('user', 'username')],
  [
    'schedule: a field out of range',
    (locks) => locks.schedule('report', '61 * * * *', noop),
    'The "cron" argument of the schedule "report" must be a cron pattern, such as "0 3 * * *" or "@daily": Invalid value for minute: 61',
  ],
  [
    'schedule: an unknown nickname',
    (locks) => locks.schedule('report', '@hourli', noop),
    'The "cron" argument of the schedule "report" must be a cron pattern, such as "0 3 * * *" or "@daily": ' +
      'it is not a nickname such as @hourly or @daily',
  ],
  [
    'schedule: control characters',
    (locks) => locks.schedule('report', '\u001b[2J * * * *', noop),
    'The "cron" argument of the schedule "report" must be a cron pattern, such as "0 3 * * *" or "@daily": ' +
      'configuration entry 1 (\\u{1b}[2J) contains illegal characters.',
  ],
  ['worker: two arguments', () => createLockWorker('k', noop), options('key', 'type string')],
  ['worker: nothing', () => createLockWorker(), options('key', 'undefined')],
  ['worker: work', () => createLockWorker({ ...worker, work: noop }), unknown('work', 'startWork')],
  ['worker: handler', () => createLockWorker({ ...worker, handler: noop }), unknown('handler', 'startWork')],
  ['worker: onStop', () => createLockWorker({ ...worker, onStop: noop }), unknown('onStop', 'stopWork')],
  ['worker: interval', () => createLockWorker({ ...worker, interval: 5 }), unknown('interval', 'retryInterval')],
  ['worker: resource', () => createLockWorker({ ...worker, resource: 'k' }), unknown('resource', 'key')],
  [
    'worker: startWork was called',
    () => createLockWorker({ ...worker, startWork: Promise.resolve() }),
    'The "startWork" argument must be of type function. Received a promise: give the function, and do not call it',
  ],
]

describe('mistakes', () => {
  for (const [what, call, message] of MISTAKES) {
    test(what, async (t) => {
      const locks = createLockClient('memory:mistakes')
      atEnd(t, () => locks.close())
      const { error } = await timed(async () => call(locks))
      assert.equal(withoutCall(error?.message, call), message)
      assert.ok(error.stack.startsWith(`${error.name}: ${error.message}\n`), error.stack)
      assert.match(error.stack, /mistakes\.test\.mjs/)
    })
  }
})

// Node 20 has Symbol.dispose and no `using`. The tests call what `using` calls at the end of its
// block.
describe('using without await', { skip: Symbol.dispose === undefined }, () => {
  const messageFor = (name) => new RegExp(`^A ${name} ends asynchronously, so "using" .*: write "await using"`)

  test('the lease is released, and the error says what to write', async (t) => {
    const locks = createLockClient('memory:using')
    atEnd(t, () => locks.close())
    for (const [name, lease] of [
      ['Lease', await locks.acquire('a')],
      ['MultiLease', await locks.acquire(['b', 'c'])],
    ]) {
      assert.throws(() => lease[Symbol.dispose](), { name: 'TypeError', message: messageFor(name) })
      await until('the release', () => !lease.isHeld)
    }
    assert.equal(await locks.inspect('a'), null)
  })

  test('a client, a schedule and a worker also end', async () => {
    const locks = createLockClient('memory:using')
    const schedule = locks.schedule('n', '@daily', noop)
    const lockWorker = createLockWorker({ ...worker, client: locks, store: undefined }).start()
    for (const [name, resource] of [
      ['Schedule', schedule],
      ['LockWorker', lockWorker],
      ['LockClient', locks],
    ]) {
      assert.throws(() => resource[Symbol.dispose](), { name: 'TypeError', message: messageFor(name) })
    }
    await until('their ends', () => schedule.next === null && lockWorker.state === 'idle')
    await assert.rejects(locks.acquire('k'), { code: 'ERR_LOCK_CLOSED' })
  })
})
