// Bad options of clients and workers: each is refused at once, with the exact class and code.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { noop, RANGE, refused, SECRET, TYPE, VALUE } from '../support/refusals.mjs'

const QUORUM = ['redis://a', `redis://:${SECRET}@b`, 'redis://c']

// The check of options accepts this text as a certificate.
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
  ['minReplicas: with a store that has no replicas', VALUE, { store: 'memory:x', minReplicas: 1 }],
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
  [
    'tls.ca: a binary certificate',
    VALUE,
    { store: 'rediss://localhost', tls: { ca: Buffer.from([48, 130, 1, 10, 2, 1]) } },
  ],
  ['tls.cert: without a key', VALUE, { store: 'rediss://localhost', tls: { cert: 'x' } }],
  ['tls.key: without a certificate', VALUE, { store: 'rediss://localhost', tls: { key: SECRET } }],
  ['tls.key: malformed', VALUE, { store: 'rediss://localhost', tls: { cert: PEM, key: SECRET } }],
  ['tls.servername: a number', TYPE, { store: 'rediss://localhost', tls: { servername: 5 } }],
  ['tls.servername: with a space', VALUE, { store: 'rediss://localhost', tls: { servername: 'a b' } }],
  ['store: a unix socket without a path', VALUE, 'redis+unix://'],
  ['store: sqlite without a path', VALUE, 'sqlite:'],
  ['store: memory without a name', VALUE, 'memory:'],
  ['store: a quorum of two', VALUE, ['redis://a', 'redis://b']],
  ['store: a quorum with one server twice', VALUE, ['redis://a', 'redis://b', 'redis://A:6379']],
  [
    'store: a quorum with one server twice, by two logins',
    VALUE,
    [`redis://u:${SECRET}@a`, 'redis://b', 'redis://v:w@a'],
  ],
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
  ['name: U+001F, which separates a name from its trace', VALUE, { store: 'memory:x', name: 'a\u{1f}b' }],
  ['username: a number', TYPE, { store: 'redis://localhost', username: 1 }],
  ['password: another in the URL', VALUE, { store: `redis://:${SECRET}@localhost`, password: 'other' }],
  ['password: empty, and another in the URL', VALUE, { store: `redis://:${SECRET}@localhost`, password: '' }],
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
  ['releaseOnSignal: SIGWINCH', VALUE, { store: 'memory:x', releaseOnSignal: ['SIGTERM', 'SIGWINCH'] }],
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

describe('bad input: createLockClient', () => {
  for (const [what, expected, options] of CLIENTS) {
    test(what, () => refused(expected, () => createLockClient(options)))
  }

  for (const [what, options, pattern] of [
    [
      'null',
      null,
      /"store" .* must be the URL of a store .*, an array of URLs, or an object of options\. Received null$/,
    ],
    ['a number', 6_379, /must be the URL of a store .*Received type number$/],
    ['one slash', 'rediss:/x', /: the store URL lacks the slashes of rediss:\/\/HOST:6379$/],
  ]) {
    test(`the message gives the value and what is expected: ${what}`, () => {
      assert.throws(() => createLockClient(options), pattern)
    })
  }

  test('no URL in production is refused', async (t) => {
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

  test('a bad URL in the environment is refused', async (t) => {
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
