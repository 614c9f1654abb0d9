// Bad arguments and options: each is refused at once, with the exact class and code, before anything is sent.
// (Bad servers are in bad-servers.test.mjs.)

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { timed } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'

const TYPE = [TypeError, 'ERR_INVALID_ARG_TYPE']
const VALUE = [TypeError, 'ERR_INVALID_ARG_VALUE']
const RANGE = [RangeError, 'ERR_OUT_OF_RANGE']

const SECRET = 'hunter2-is-a-secret'
const noop = () => {}

/** [what, expected class and code, what to call with a fresh client] */
const ARGUMENTS = [
  ['no key', TYPE, (locks) => locks.acquire()],
  ['key: null', TYPE, (locks) => locks.acquire(null)],
  ['key: a number', TYPE, (locks) => locks.acquire(7)],
  ['key: an object', TYPE, (locks) => locks.acquire({})],
  ['key: a symbol', TYPE, (locks) => locks.acquire(Symbol('k'))],
  ['key: empty', VALUE, (locks) => locks.acquire('')],
  ['key: of 1025 bytes', RANGE, (locks) => locks.acquire('k'.repeat(1_025))],
  ['key: of 342 characters, 1026 bytes', RANGE, (locks) => locks.acquire('鍵'.repeat(342))],
  ['key: of 1 MB', RANGE, (locks) => locks.acquire('k'.repeat(1_048_576))],
  ['key: a lone surrogate', VALUE, (locks) => locks.acquire('a\ud800b')],
  ['key: with NUL', VALUE, (locks) => locks.acquire('a\0b')],
  ['tryAcquire: empty key', VALUE, (locks) => locks.tryAcquire('')],
  ['withLock: empty key', VALUE, (locks) => locks.withLock('', noop)],
  ['inspect: a number', TYPE, (locks) => locks.inspect(1)],
  ['inspect: empty key', VALUE, (locks) => locks.inspect('')],
  ['ttl: 0', RANGE, (locks) => locks.acquire('k', { ttl: 0 })],
  ['ttl: negative', RANGE, (locks) => locks.acquire('k', { ttl: -1 })],
  ['ttl: 9', RANGE, (locks) => locks.acquire('k', { ttl: 9 })],
  ['ttl: 2147483648', RANGE, (locks) => locks.acquire('k', { ttl: 2 ** 31 })],
  ['ttl: NaN', RANGE, (locks) => locks.acquire('k', { ttl: NaN })],
  ['ttl: Infinity', RANGE, (locks) => locks.acquire('k', { ttl: Infinity })],
  ['ttl: 10.5', RANGE, (locks) => locks.acquire('k', { ttl: 10.5 })],
  ["ttl: '1000'", TYPE, (locks) => locks.acquire('k', { ttl: '1000' })],
  ['ttl: null', TYPE, (locks) => locks.acquire('k', { ttl: null })],
  ['ttl: a bigint', TYPE, (locks) => locks.acquire('k', { ttl: 1000n })],
  ['wait: negative', RANGE, (locks) => locks.acquire('k', { wait: -1 })],
  ['wait: NaN', RANGE, (locks) => locks.acquire('k', { wait: NaN })],
  ['wait: 2 ** 31', RANGE, (locks) => locks.acquire('k', { wait: 2 ** 31 })],
  ['wait: a string', TYPE, (locks) => locks.acquire('k', { wait: 'long' })],
  ['maxHold: less than the ttl', RANGE, (locks) => locks.acquire('k', { ttl: 1_000, maxHold: 999 })],
  ['maxHold: negative', RANGE, (locks) => locks.acquire('k', { maxHold: -5 })],
  ['maxHold: a string', TYPE, (locks) => locks.acquire('k', { maxHold: '5s' })],
  ['autoRenew: a string', TYPE, (locks) => locks.acquire('k', { autoRenew: 'no' })],
  ['signal: an object', TYPE, (locks) => locks.acquire('k', { signal: {} })],
  ['signal: the controller', TYPE, (locks) => locks.acquire('k', { signal: new AbortController() })],
  ['options: a number', TYPE, (locks) => locks.acquire('k', 5_000)],
  ['options: null', TYPE, (locks) => locks.acquire('k', null)],
  ['options: misspelt (tll)', VALUE, (locks) => locks.acquire('k', { tll: 1_000 })],
  ['options: of another library (timeout)', VALUE, (locks) => locks.tryAcquire('k', { timeout: 1_000 })],
  ['withLock: no function', TYPE, (locks) => locks.withLock('k')],
  ['withLock: a promise for a function', TYPE, (locks) => locks.withLock('k', Promise.resolve())],
  ['withLock: options but no function', TYPE, (locks) => locks.withLock('k', { ttl: 1_000 })],
  ['withLock: bad options', RANGE, (locks) => locks.withLock('k', { ttl: -1 }, noop)],
  ['renew: 0', RANGE, async (locks) => (await locks.acquire('k')).renew(0)],
  ['renew: a string', TYPE, async (locks) => (await locks.acquire('k')).renew('10s')],
  ['renew: NaN', RANGE, async (locks) => (await locks.acquire('k')).renew(NaN)],
]

/** [what, expected class and code, the argument of createLockClient] */
const CLIENTS = [
  ['store: a number', TYPE, 6_379],
  ['store: true', TYPE, { store: true }],
  ['store: empty', VALUE, ''],
  ['store: no URL', VALUE, 'localhost:6379'],
  ['store: a word', VALUE, 'redis'],
  ['store: an unknown scheme', VALUE, `mysql://root:${SECRET}@localhost/db`],
  ['store: http', VALUE, 'http://localhost:6379'],
  ['store: no host', VALUE, 'redis://'],
  ['store: port 0', VALUE, `redis://:${SECRET}@localhost:0`],
  ['store: port 65536', VALUE, `redis://:${SECRET}@localhost:65536`],
  ['store: port in letters', VALUE, `redis://:${SECRET}@localhost:redis`],
  ['store: database in letters', VALUE, `redis://:${SECRET}@localhost:6379/zero`],
  ['store: database negative', VALUE, 'redis://localhost:6379/-1'],
  ['store: a broken escape', VALUE, `redis://:%zz${SECRET}@localhost:6379`],
  ['store: an unknown query', VALUE, `redis://:${SECRET}@localhost:6379?tiemout=5`],
  ['store: rediss, which is not there yet', VALUE, `rediss://:${SECRET}@localhost:6379`],
  ['store: a unix socket without a path', VALUE, 'redis+unix://'],
  ['store: sqlite without a path', VALUE, 'sqlite:'],
  ['store: memory without a name', VALUE, 'memory:'],
  ['store: an array, which is not there yet', VALUE, ['redis://a', 'redis://b', 'redis://c']],
  ['store: an empty array', VALUE, []],
  ['store: an array of numbers', TYPE, { store: [1, 2, 3] }],
  ['store: NUL', VALUE, 'sqlite:a\0b'],
  ['options: a function', TYPE, noop],
  ['options: misspelt (perfix)', VALUE, { store: 'memory:x', perfix: 'p' }],
  ['prefix: a number', TYPE, { store: 'memory:x', prefix: 1 }],
  ['prefix: a lone surrogate', VALUE, { store: 'memory:x', prefix: '\udc00' }],
  ['ttl: of 0', RANGE, { store: 'memory:x', ttl: 0 }],
  ['ttl: a string', TYPE, { store: 'memory:x', ttl: '10s' }],
  ['wait: negative', RANGE, { store: 'memory:x', wait: -1 }],
  ['maxStall: 99', RANGE, { store: 'memory:x', maxStall: 99 }],
  ['maxStall: NaN', RANGE, { store: 'memory:x', maxStall: NaN }],
  ['maxStall: a string', TYPE, { store: 'memory:x', maxStall: 'never' }],
  ['storeTimeout: 9', RANGE, { store: 'memory:x', storeTimeout: 9 }],
  ['storeTimeout: 60001', RANGE, { store: 'memory:x', storeTimeout: 60_001 }],
  ['name: a number', TYPE, { store: 'memory:x', name: 1 }],
  ['username: a number', TYPE, { store: 'redis://localhost', username: 1 }],
  ['password: an object', TYPE, { store: 'redis://localhost', password: {} }],
  ['releaseOnSignal: a string', TYPE, { store: 'memory:x', releaseOnSignal: 'SIGTERM' }],
  ['releaseOnSignal: no such signal', VALUE, { store: 'memory:x', releaseOnSignal: ['SIGNONE'] }],
  ['releaseOnSignal: SIGKILL', VALUE, { store: 'memory:x', releaseOnSignal: ['SIGKILL'] }],
]

const worker = { store: 'memory:x', key: 'k', startWork: noop }

/** [what, expected class and code, the argument of createLockWorker] */
const WORKERS = [
  ['nothing', TYPE, undefined],
  ['no key', TYPE, { ...worker, key: undefined }],
  ['key: empty', VALUE, { ...worker, key: '' }],
  ['no startWork', TYPE, { ...worker, startWork: undefined }],
  ['startWork: a string', TYPE, { ...worker, startWork: 'work' }],
  ['stopWork: a number', TYPE, { ...worker, stopWork: 1 }],
  ['ttl: negative', RANGE, { ...worker, ttl: -1 }],
  ['retryInterval: negative', RANGE, { ...worker, retryInterval: -1 }],
  ['retryInterval: a string', TYPE, { ...worker, retryInterval: '5s' }],
  ['stopTimeout: NaN', RANGE, { ...worker, stopTimeout: NaN }],
  ['workerId: a number', TYPE, { ...worker, workerId: 1 }],
  ['client and store', VALUE, { ...worker, client: createLockClient('memory:unused') }],
  ['client: an object', TYPE, { ...worker, store: undefined, client: {} }],
  ['options: misspelt (onStart)', VALUE, { ...worker, onStart: noop }],
]

async function refused([Class, code], action) {
  const { ms, value, error } = await timed(async () => action())
  assert.ok(error, `was accepted: ${String(value)}`)
  assert.equal(error.constructor, Class, `${error.stack}`)
  assert.equal(error.code, code, error.message)
  assert.ok(error.message.length > 20, `says too little: ${error.message}`)
  assert.ok(error.message.length < 500, `says too much: ${error.message.length} characters`)
  assert.ok(!error.stack.includes(SECRET), error.stack)
  assert.ok(ms < 1_000, `at once, not after ${ms} ms`)
}

describe('bad input: arguments', () => {
  for (const [what, expected, call] of ARGUMENTS) {
    test(what, async (t) => {
      const locks = createLockClient('memory:bad-input')
      atEnd(t, () => locks.close())
      await refused(expected, () => call(locks))
    })
  }
})

describe('bad input: createLockClient', () => {
  for (const [what, expected, options] of CLIENTS) {
    test(what, () => refused(expected, () => createLockClient(options)))
  }

  test('no URL in production', async (t) => {
    const { NODE_ENV, LEASEHOLD_URL, REDIS_URL } = process.env
    atEnd(t, () => {
      for (const [name, value] of Object.entries({ NODE_ENV, LEASEHOLD_URL, REDIS_URL })) {
        if (value === undefined) delete process.env[name]
        else process.env[name] = value
      }
    })
    process.env.NODE_ENV = 'production'
    delete process.env.LEASEHOLD_URL
    delete process.env.REDIS_URL
    await refused(VALUE, () => createLockClient())
  })

  test('a bad URL in the environment', async (t) => {
    const { LEASEHOLD_URL } = process.env
    atEnd(t, () => {
      if (LEASEHOLD_URL === undefined) delete process.env.LEASEHOLD_URL
      else process.env.LEASEHOLD_URL = LEASEHOLD_URL
    })
    process.env.LEASEHOLD_URL = `gopher://:${SECRET}@localhost`
    await refused(VALUE, () => createLockClient())
  })
})

describe('bad input: createLockWorker', () => {
  for (const [what, expected, options] of WORKERS) {
    test(what, () => refused(expected, () => createLockWorker(options)))
  }
})
