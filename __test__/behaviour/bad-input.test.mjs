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

const ticket = (content) => Buffer.from(JSON.stringify(content)).toString('base64url')
/** What is in a ticket that could be a real one. */
const TICKET = { v: 1, key: SECRET, token: '00000000-0000-4000-8000-000000000000', fence: 7, ttl: 1_000, most: 0 }

/** [what, expected class and code, what to call with a fresh client] */
const ARGUMENTS = [
  ['createLockClient: a URL object', TYPE, () => createLockClient(new URL(`redis://u:${SECRET}@localhost`))],
  ['createLockClient: options beside the store', VALUE, () => createLockClient('memory:a', { ttl: 5_000 })],
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
  ['keys: empty', VALUE, (locks) => locks.acquire([])],
  ['keys: a number among them', TYPE, (locks) => locks.acquire(['a', 7])],
  ['keys: a hole among them', TYPE, (locks) => locks.acquire(Array(2))],
  ['keys: an empty one among them', VALUE, (locks) => locks.tryAcquire(['a', ''])],
  ['keys: an array among them', TYPE, (locks) => locks.withLock(['a', ['b']], noop)],
  ['keys: a set', TYPE, (locks) => locks.acquire(new Set(['a']))],
  ['keys: of 1025 bytes', RANGE, (locks) => locks.acquire(['a', 'k'.repeat(1_025)])],
  ['inspect: an array', TYPE, (locks) => locks.inspect(['a'])],
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
  ['failFast: a string', TYPE, (locks) => locks.acquire('k', { failFast: 'yes' })],
  ['failFast: null', TYPE, (locks) => locks.withLock('k', { failFast: null }, () => {})],
  ['failFast: a number', TYPE, (locks) => locks.semaphore('k', 2).acquire({ failFast: 1 })],
  ['once: failFast', TYPE, (locks) => locks.once('k', 'id', () => {}, { failFast: 0 })],
  ['tryAcquire: failFast', VALUE, (locks) => locks.tryAcquire('k', { failFast: true })],
  ['retry: false', TYPE, (locks) => locks.acquire('k', { retry: false })],
  ['retry: a number', TYPE, (locks) => locks.acquire('k', { retry: 3 })],
  ['retry: null', TYPE, (locks) => locks.acquire('k', { retry: null })],
  ['retry: an array', TYPE, (locks) => locks.acquire('k', { retry: [] })],
  ['retry: misspelt (minDealy)', VALUE, (locks) => locks.acquire('k', { retry: { minDealy: 5 } })],
  ['retry.retries: negative', RANGE, (locks) => locks.acquire('k', { retry: { retries: -1 } })],
  ['retry.retries: a fraction', RANGE, (locks) => locks.acquire('k', { retry: { retries: 1.5 } })],
  ['retry.retries: a string', TYPE, (locks) => locks.acquire('k', { retry: { retries: '3' } })],
  ['retry.minDelay: 0', RANGE, (locks) => locks.acquire('k', { retry: { minDelay: 0 } })],
  ['retry.minDelay: a string', TYPE, (locks) => locks.acquire('k', { retry: { minDelay: '50ms' } })],
  ['retry.maxDelay: below minDelay', RANGE, (locks) => locks.acquire('k', { retry: { minDelay: 50, maxDelay: 49 } })],
  ['retry.maxDelay: Infinity', RANGE, (locks) => locks.acquire('k', { retry: { maxDelay: Infinity } })],
  ['retry.factor: below 1', RANGE, (locks) => locks.acquire('k', { retry: { factor: 0.5 } })],
  ['retry.factor: NaN', RANGE, (locks) => locks.acquire('k', { retry: { factor: NaN } })],
  ['retry.jitter: above 1', RANGE, (locks) => locks.acquire('k', { retry: { jitter: 1.1 } })],
  ['retry.jitter: a string', TYPE, (locks) => locks.acquire('k', { retry: { jitter: 'full' } })],
  ['tryAcquire: retry', VALUE, (locks) => locks.tryAcquire('k', { retry: true })],
  ['semaphore: empty key', VALUE, (locks) => locks.semaphore('', 1)],
  ['semaphore: an array', TYPE, (locks) => locks.semaphore(['a', 'b'], 1)],
  ['semaphore: no permits', TYPE, (locks) => locks.semaphore('k')],
  ['semaphore: 0 permits', RANGE, (locks) => locks.semaphore('k', 0)],
  ['semaphore: 1.5 permits', RANGE, (locks) => locks.semaphore('k', 1.5)],
  ['semaphore: 1000001 permits', RANGE, (locks) => locks.semaphore('k', 1_000_001)],
  ['semaphore: Infinity permits', RANGE, (locks) => locks.semaphore('k', Infinity)],
  ['semaphore: bad options', RANGE, (locks) => locks.semaphore('k', 2).acquire({ ttl: -1 })],
  ['semaphore: tryAcquire with a wait', VALUE, (locks) => locks.semaphore('k', 2).tryAcquire({ wait: 5 })],
  ['semaphore: withLock without a function', TYPE, (locks) => locks.semaphore('k', 2).withLock({ ttl: 50 })],
  ['readWriteLock: a number', TYPE, (locks) => locks.readWriteLock(7)],
  ['readWriteLock: bad options', TYPE, (locks) => locks.readWriteLock('k').read.acquire(5)],
  ['detach: 9', RANGE, async (locks) => (await locks.acquire('k')).detach(9)],
  ['detach: a string', TYPE, async (locks) => (await locks.acquire('k')).detach('10s')],
  ['adopt: nothing', TYPE, (locks) => locks.adopt()],
  ['adopt: a lease', TYPE, async (locks) => locks.adopt(await locks.acquire('k'))],
  ['adopt: empty', VALUE, (locks) => locks.adopt('')],
  ['adopt: not base64url', VALUE, (locks) => locks.adopt(`${SECRET}!`)],
  ['adopt: not JSON', VALUE, (locks) => locks.adopt(SECRET)],
  ['adopt: JSON of nothing', VALUE, (locks) => locks.adopt(ticket(null))],
  ['adopt: another version', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, v: 2 }))],
  ['adopt: no token', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, token: undefined }))],
  ['adopt: a token that is none', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, token: SECRET }))],
  ['adopt: a key with NUL', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, key: `${SECRET}\0` }))],
  [
    'adopt: a fence that no store gives',
    VALUE,
    (locks) => locks.adopt(ticket({ ...TICKET, fence: Number.MAX_SAFE_INTEGER })),
  ],
  ['adopt: a fence that is none', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, fence: -1 }))],
  ['adopt: a ttl that is none', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, ttl: 0 }))],
  ['adopt: a mode that is none', VALUE, (locks) => locks.adopt(ticket({ ...TICKET, most: 2 ** 32 }))],
  ['adopt: of 1 MB', VALUE, (locks) => locks.adopt('A'.repeat(1_048_576))],
  ['adopt: a ticket cut short', VALUE, (locks) => locks.adopt(ticket(TICKET).slice(0, -4))],
  ['adopt: bad options', RANGE, (locks) => locks.adopt(ticket(TICKET), { ttl: 1 })],
  ['adopt: a wait', VALUE, (locks) => locks.adopt(ticket(TICKET), { wait: 100 })],
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
  ['once: no id', TYPE, (locks) => locks.once('k', undefined, noop)],
  ['once: an event that is none', VALUE, (locks) => locks.once('welcome-mail', noop)],
  ['once: a number for an id', TYPE, (locks) => locks.once('k', 7, noop)],
  ['once: an empty id', VALUE, (locks) => locks.once('k', '', noop)],
  ['once: an id with NUL', VALUE, (locks) => locks.once('k', 'a\0b', noop)],
  ['once: an id of 1025 bytes', RANGE, (locks) => locks.once('k', 'i'.repeat(1_025), noop)],
  ['once: key and id of 1025 bytes', RANGE, (locks) => locks.once('k'.repeat(500), 'i'.repeat(519), noop)],
  ['once: no key', TYPE, (locks) => locks.once(undefined, 'id', noop)],
  ['once: no function', TYPE, (locks) => locks.once('k', 'id')],
  ['once: options for a function', TYPE, (locks) => locks.once('k', 'id', { keep: 5_000 })],
  ['once: options: null', TYPE, (locks) => locks.once('k', 'id', noop, null)],
  ['once: misspelt (keeep)', VALUE, (locks) => locks.once('k', 'id', noop, { keeep: 5_000 })],
  ['once: keep: less than the ttl', RANGE, (locks) => locks.once('k', 'id', noop, { keep: 9_999 })],
  ['once: keep: Infinity', RANGE, (locks) => locks.once('k', 'id', noop, { keep: Infinity })],
  ['once: keep: a string', TYPE, (locks) => locks.once('k', 'id', noop, { keep: '1h' })],
  ['once: ttl: 0', RANGE, (locks) => locks.once('k', 'id', noop, { ttl: 0 })],
  ['once: wait: negative', RANGE, (locks) => locks.once('k', 'id', noop, { wait: -1 })],
  ['once: onFailure: a word', VALUE, (locks) => locks.once('k', 'id', noop, { onFailure: 'retry' })],
  ['once: onFailure: true', TYPE, (locks) => locks.once('k', 'id', noop, { onFailure: true })],
  ['once: signal: an object', TYPE, (locks) => locks.once('k', 'id', noop, { signal: {} })],
  ['schedule: no name', TYPE, (locks) => locks.schedule(undefined, '@daily', noop)],
  ['schedule: a name that leaves no room', RANGE, (locks) => locks.schedule('n'.repeat(1_020), '@daily', noop)],
  ['schedule: no pattern', TYPE, (locks) => locks.schedule('n', undefined, noop)],
  ['schedule: a pattern of three fields', VALUE, (locks) => locks.schedule('n', '* * *', noop)],
  ['schedule: a pattern of eight fields', VALUE, (locks) => locks.schedule('n', '* * * * * * * *', noop)],
  ['schedule: minute 99', VALUE, (locks) => locks.schedule('n', '99 * * * *', noop)],
  ['schedule: @sometimes', VALUE, (locks) => locks.schedule('n', '@sometimes', noop)],
  ['schedule: a date', VALUE, (locks) => locks.schedule('n', '2030-01-01T00:00:00', noop)],
  ['schedule: the 30th of February', VALUE, (locks) => locks.schedule('n', '0 0 30 2 *', noop)],
  ['schedule: a pattern of 1 MB', RANGE, (locks) => locks.schedule('n', '*'.repeat(1_048_576), noop)],
  ['schedule: no function', TYPE, (locks) => locks.schedule('n', '@daily')],
  ['schedule: options: null', TYPE, (locks) => locks.schedule('n', '@daily', noop, null)],
  ['schedule: misspelt (timezone)', VALUE, (locks) => locks.schedule('n', '@daily', noop, { timezone: 'UTC' })],
  ['schedule: timeZone: none', VALUE, (locks) => locks.schedule('n', '@daily', noop, { timeZone: 'Mars/Olympus' })],
  ['schedule: timeZone: a number', TYPE, (locks) => locks.schedule('n', '@daily', noop, { timeZone: 2 })],
  ['schedule: overlap: a string', TYPE, (locks) => locks.schedule('n', '@daily', noop, { overlap: 'no' })],
  ['schedule: catchUp: 999', RANGE, (locks) => locks.schedule('n', '@daily', noop, { catchUp: 999 })],
  ['schedule: catchUp: a string', TYPE, (locks) => locks.schedule('n', '@daily', noop, { catchUp: '1h' })],
  ['schedule: keep: too short to catch up', RANGE, (locks) => locks.schedule('n', '@daily', noop, { keep: 19_999 })],
  ['schedule: ttl: 0', RANGE, (locks) => locks.schedule('n', '@daily', noop, { ttl: 0 })],
  ['schedule: unref: a number', TYPE, (locks) => locks.schedule('n', '@daily', noop, { unref: 1 })],
  ['renew: 0', RANGE, async (locks) => (await locks.acquire('k')).renew(0)],
  ['renew: a string', TYPE, async (locks) => (await locks.acquire('k')).renew('10s')],
  ['renew: NaN', RANGE, async (locks) => (await locks.acquire('k')).renew(NaN)],
]

const QUORUM = ['redis://a', `redis://:${SECRET}@b`, 'redis://c']

// Enough of a certificate to be taken for one.
const PEM = '-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n'

/** [what, expected class and code, the argument of createLockClient] */
const CLIENTS = [
  ['store: a number', TYPE, 6_379],
  ['store: null', TYPE, null],
  ['store: true', TYPE, { store: true }],
  ['store: empty', VALUE, ''],
  ['store: no URL', VALUE, 'localhost:6379'],
  ['store: a word', VALUE, 'redis'],
  ['store: an unknown scheme', VALUE, `mysql://root:${SECRET}@localhost/db`],
  ['store: http', VALUE, 'http://localhost:6379'],
  ['store: one slash', VALUE, `redis:/u:${SECRET}@localhost`],
  ['store: no slash', VALUE, 'redis:localhost'],
  ['store: no host', VALUE, 'redis://'],
  ['store: port 0', VALUE, `redis://:${SECRET}@localhost:0`],
  ['store: port 65536', VALUE, `redis://:${SECRET}@localhost:65536`],
  ['store: port in letters', VALUE, `redis://:${SECRET}@localhost:redis`],
  ['store: database in letters', VALUE, `redis://:${SECRET}@localhost:6379/zero`],
  ['store: database negative', VALUE, 'redis://localhost:6379/-1'],
  ['store: a broken escape', VALUE, `redis://:%zz${SECRET}@localhost:6379`],
  ['store: an unknown query', VALUE, `redis://:${SECRET}@localhost:6379?tiemout=5`],
  ['store: a Sentinel without the name of the master', VALUE, `redis-sentinel://:${SECRET}@localhost`],
  ['store: a Sentinel without a host', VALUE, `redis-sentinel://:${SECRET}@/mymaster`],
  ['sentinelPassword: a number', TYPE, { store: 'redis-sentinel://localhost/m', sentinelPassword: 1 }],
  ['sentinelUsername: a number', TYPE, { store: 'redis-sentinel://localhost/m', sentinelUsername: 1 }],
  ['sentinelPassword: with redis://', VALUE, { store: 'redis://localhost', sentinelPassword: SECRET }],
  ['minReplicas: negative', RANGE, { store: 'redis://localhost', minReplicas: -1 }],
  ['minReplicas: a fraction', RANGE, { store: 'redis://localhost', minReplicas: 0.5 }],
  ['minReplicas: a string', TYPE, { store: 'redis://localhost', minReplicas: '1' }],
  ['minReplicas: with a store that has none', VALUE, { store: 'memory:x', minReplicas: 1 }],
  ['tls: a string', TYPE, { store: 'rediss://localhost', tls: 'yes' }],
  ['tls: true', TYPE, { store: 'rediss://localhost', tls: true }],
  ['tls: misspelt (caa)', VALUE, { store: 'rediss://localhost', tls: { caa: 'x' } }],
  ['tls: rejectUnauthorized', VALUE, { store: 'rediss://localhost', tls: { rejectUnauthorized: false } }],
  ['tls: with redis://', VALUE, { store: `redis://:${SECRET}@localhost`, tls: {} }],
  ['tls: with another store', VALUE, { store: 'memory:x', tls: {} }],
  ['tls.ca: the name of a file', VALUE, { store: 'rediss://localhost', tls: { ca: '/etc/ssl/ca.pem' } }],
  ['tls.ca: a number', TYPE, { store: 'rediss://localhost', tls: { ca: 5 } }],
  ['tls.ca: empty', VALUE, { store: 'rediss://localhost', tls: { ca: [] } }],
  ['tls.ca: an array of numbers', TYPE, { store: 'rediss://localhost', tls: { ca: [5] } }],
  ['tls.ca: no text', VALUE, { store: 'rediss://localhost', tls: { ca: Buffer.from([48, 130, 1, 10, 2, 1]) } }],
  ['tls.cert: without a key', VALUE, { store: 'rediss://localhost', tls: { cert: 'x' } }],
  ['tls.key: without a certificate', VALUE, { store: 'rediss://localhost', tls: { key: SECRET } }],
  ['tls.key: malformed', VALUE, { store: 'rediss://localhost', tls: { cert: PEM, key: SECRET } }],
  ['tls.servername: a number', TYPE, { store: 'rediss://localhost', tls: { servername: 5 } }],
  ['tls.servername: no name', VALUE, { store: 'rediss://localhost', tls: { servername: 'a b' } }],
  ['store: a unix socket without a path', VALUE, 'redis+unix://'],
  ['store: sqlite without a path', VALUE, 'sqlite:'],
  ['store: memory without a name', VALUE, 'memory:'],
  ['store: a quorum of two', VALUE, ['redis://a', 'redis://b']],
  ['store: a quorum in which one is twice', VALUE, ['redis://a', 'redis://b', 'redis://A:6379']],
  ['store: a quorum with a malformed URL', VALUE, ['redis://a', 'redis://b', 'redis://']],
  ['store: a quorum with a cluster in it', VALUE, ['redis://a', 'redis://b', 'redis-cluster://c']],
  ['store: a quorum with a comma between its URLs', VALUE, `redis://:${SECRET}@a,redis://b,redis://c`],
  ['store: a quorum with blanks between its URLs', VALUE, `redis://:${SECRET}@a redis://b\nredis://c`],
  ['store: an array of one text with commas', VALUE, [`redis://:${SECRET}@a, rediss://b,redis-cluster://c`]],
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
  ['failFast: a string', TYPE, { store: 'memory:x', failFast: 'true' }],
  ['maxStall: 99', RANGE, { store: 'memory:x', maxStall: 99 }],
  ['maxStall: NaN', RANGE, { store: 'memory:x', maxStall: NaN }],
  ['maxStall: a string', TYPE, { store: 'memory:x', maxStall: 'never' }],
  ['storeTimeout: 9', RANGE, { store: 'memory:x', storeTimeout: 9 }],
  ['storeTimeout: 60001', RANGE, { store: 'memory:x', storeTimeout: 60_001 }],
  ['handOffs: negative', RANGE, { store: 'memory:x', handOffs: -1 }],
  ['handOffs: 1001', RANGE, { store: 'memory:x', handOffs: 1_001 }],
  ['handOffs: a fraction', RANGE, { store: 'memory:x', handOffs: 0.5 }],
  ['handOffs: a boolean', TYPE, { store: 'memory:x', handOffs: false }],
  ['name: a number', TYPE, { store: 'memory:x', name: 1 }],
  ['name: U+001F, behind which a trace is kept', VALUE, { store: 'memory:x', name: 'a\u{1f}b' }],
  ['username: a number', TYPE, { store: 'redis://localhost', username: 1 }],
  ['password: another in the URL', VALUE, { store: `redis://:${SECRET}@localhost`, password: 'other' }],
  ['password: another in the URL, of which it is none', VALUE, { store: `redis://:${SECRET}@localhost`, password: '' }],
  ['password: another in the query', VALUE, { store: `redis://localhost?pass=${SECRET}`, password: 'other' }],
  ['password: two in the URL', VALUE, `redis://:${SECRET}@localhost?pass=other`],
  ['password: another in one URL of a quorum', VALUE, { store: QUORUM, password: 'other' }],
  ['password: another in the URL of a cluster', VALUE, { store: `redis-cluster://:${SECRET}@a,b`, password: 'other' }],
  [
    'password: another in the URL of a Sentinel',
    VALUE,
    { store: `redis-sentinel://:${SECRET}@a/m`, password: 'other' },
  ],
  ['username: another in the URL', VALUE, { store: `redis://${SECRET}@localhost`, username: 'other' }],
  ['username: two in the URL', VALUE, `redis://${SECRET}:p@localhost?user=other`],
  ['store: two databases', VALUE, 'redis://localhost/1?db=2'],
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
  ['workerId: U+001F', VALUE, { ...worker, workerId: '\u{1f}' }],
  ['client and store', VALUE, { ...worker, client: createLockClient('memory:unused') }],
  ['client and prefix', VALUE, { ...worker, store: undefined, client: createLockClient('memory:unused'), prefix: '' }],
  ['prefix: a number', TYPE, { ...worker, prefix: 1 }],
  ['store: a client', VALUE, { ...worker, store: createLockClient('memory:unused') }],
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

describe('bad input: what is said of a duration that is no number', () => {
  const number = /^The "(\w+)" argument must be a number of milliseconds\. Received type string$/
  const orInfinity = /^The "(\w+)" argument must be a number of milliseconds, or Infinity\. Received type string$/
  for (const [name, said, call] of [
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
      assert.equal(said.exec(error.message)?.[1], name, error.message)
    })
  }
})

describe('bad input: what an unknown option was meant to be', () => {
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
      assert.equal(error.message, `Unknown option "${given}"; did you mean "${meant}"?`)
    })
  }

  test('Passw0rd: password, and not the name', () => {
    assert.throws(() => inClient('Passw0rd'), { message: 'Unknown option; did you mean "password"?' })
  })

  for (const [given, known, call] of [
    ['colour', /^"store", "username", .*"ttl", .*"releaseOnSignal"$/, inClient],
    ['tmp', /^"ttl", "signal", .*"wait"/, inAcquire],
    ['x', /"startWork"/, inWorker],
    // These may be passwords.
    ['hunter2', /^"store", /, inClient],
    ['correct-horse', /^"store", /, inClient],
  ]) {
    test(`${given}: the known options, and not the name`, async () => {
      const { error } = await timed(async () => call(given))
      const [, names] = /^Unknown option; the options are (.*)$/.exec(error.message) ?? assert.fail(error.message)
      assert.match(names, known)
    })
  }
})

describe('bad input: what is said', () => {
  const unknown = (option, why) => `Unknown option "${option}"${why}`
  const noOption = 'Unknown option; the options are "ttl", "signal", "autoRenew", "maxHold"'
  const noFunction = (given) => `The "fn" argument must be of type function. Received ${given}`
  const noZone = (given) =>
    `The "timeZone" option must be the name of a time zone, such as "Europe/Berlin" or "UTC". Received "${given}"`
  const inZone = (timeZone) => (locks) => locks.schedule('n', '@daily', noop, { timeZone })
  for (const [call, said] of [
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
    test(`${call}: ${said}`, async (t) => {
      const locks = createLockClient('memory:bad-input')
      atEnd(t, () => locks.close())
      const { error } = await timed(async () => call(locks))
      assert.equal(error.message, said)
    })
  }
})

test('bad input: a keep that is shorter than the ttl is told with both, and why', async (t) => {
  const locks = createLockClient({ store: 'memory:bad-input', ttl: 3_000 })
  atEnd(t, () => locks.close())
  const why = /"keep" .*must be at least "ttl", 3000 ms: .*remembered by its lease.* Received 2999 ms$/
  await assert.rejects(locks.once('k', 'id', noop, { keep: 2_999 }), why)
})

describe('bad input: createLockClient', () => {
  for (const [what, expected, options] of CLIENTS) {
    test(what, () => refused(expected, () => createLockClient(options)))
  }

  for (const [what, options, said] of [
    [
      'null',
      null,
      /"store" .* must be the URL of a store .*, an array of URLs, or an object of options\. Received null$/,
    ],
    ['a number', 6_379, /must be the URL of a store .*Received type number$/],
    ['one slash', 'rediss:/x', /: the store URL lacks the slashes of rediss:\/\/HOST:6379$/],
  ]) {
    test(`what was given and what is expected is said: ${what}`, () => {
      assert.throws(() => createLockClient(options), said)
    })
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
    const login = `:${SECRET}@`
    for (const url of [
      `gopher://${login}localhost`,
      `redis://${login}a gopher://${login}b redis://c`,
      `redis://${login}a redis://${login}b`,
      `redis://${login}a,redis://${login}b,redis://c`,
      ` \n`,
    ]) {
      process.env.LEASEHOLD_URL = url
      await refused(VALUE, () => createLockClient())
    }
  })
})

describe('bad input: createLockWorker', () => {
  for (const [what, expected, options] of WORKERS) {
    test(what, () => refused(expected, () => createLockWorker(options)))
  }
})
