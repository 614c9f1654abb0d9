// Mistakes with the store: a client of another library, options of another library, and texts that
// are not URLs. The message says what was given and what to give instead, and never shows a
// password. package/redis-clients.test.mjs passes real clients of the other libraries.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { createLockClient, createLockWorker } from 'leasehold'
import { atEnd } from '../support/endings.mjs'
import { withoutCall } from '../support/refusals.mjs'

const SECRET = 'hunter2'
const TYPE = 'ERR_INVALID_ARG_TYPE'
const VALUE = 'ERR_INVALID_ARG_VALUE'

/** Returns what the error of `call` says, and asserts that it shows no secret. */
function errorOf(call) {
  try {
    call()
  } catch (error) {
    const shown = `${error.stack}\n${JSON.stringify(error)}`.replaceAll(/^.*store-mistakes.*$/gm, '')
    assert.ok(!shown.includes(SECRET), shown)
    assert.ok(error instanceof TypeError, shown)
    assert.ok(error.message.length < 500, `${error.message.length} characters`)
    return { code: error.code, message: withoutCall(error.message, call) }
  }
  assert.fail('the call was accepted')
}

const methods = (...names) => Object.fromEntries(names.map((name) => [name, () => assert.fail(`${name}() was called`)]))

/** Returns an object with these properties, whose prototype has these methods. */
const instance = (properties, ...names) => Object.assign(Object.create(methods(...names)), properties)

const LOGIN = { username: 'app', password: SECRET }

// Clients like those of ioredis 4 to 6 and iovalkey.
const ioredis = (options) =>
  instance({ options: { host: 'localhost', port: 6379, db: 0, ...options }, status: 'wait' }, 'sendCommand')
const ioredisCluster = (startupNodes, redisOptions) =>
  instance({ isCluster: true, status: 'ready', startupNodes, options: { redisOptions } }, 'sendCommand')
// Clients like those of node-redis 4 to 6.
const nodeRedis = (options) => instance({ isOpen: false, options }, 'sendCommand', 'connect')
const nodeRedisCluster = (options) => instance({ isOpen: true, _options: options }, 'sendCommand', 'getSlotMaster')
const [pool, sentinel, cluster4] = [
  instance({ isOpen: true, totalClients: 1 }, 'sendCommand', 'execute'),
  instance({ isOpen: true }, 'sendCommand', 'getSentinelNode'),
  instance({ isOpen: true }, 'sendCommand', 'getSlotRandomNode'),
]
const redis3 = instance({ options: { host: 'h', port: 7000, password: SECRET, db: 1 } }, 'internal_send_command')

const SENTINELS = [{ host: 'a', port: 26379 }, { host: 'b' }]

/** [what, the client, how the message names it, the URL in the message] */
const CLIENTS = [
  ['ioredis', ioredis({ db: 2 }), 'a client of ioredis', 'redis://localhost:6379/2'],
  ['ioredis with a password', ioredis(LOGIN), 'a client of ioredis', 'redis://app:<password>@localhost:6379'],
  ['ioredis: tls', ioredis({ tls: {}, port: '6380' }), 'a client of ioredis', 'rediss://localhost:6380'],
  ['ioredis: IPv6', ioredis({ host: '::1' }), 'a client of ioredis', 'redis://[::1]:6379'],
  ['ioredis: a socket', ioredis({ path: '/run/r.sock' }), 'a client of ioredis', 'redis+unix:///run/r.sock'],
  [
    'ioredis: sentinels',
    ioredis({ sentinels: SENTINELS, name: 'mymaster', password: SECRET, sentinelPassword: SECRET, db: 3 }),
    'a client of ioredis',
    'redis-sentinel://:<password>@a:26379,b:26379/mymaster?db=3',
  ],
  [
    'ioredis: a cluster',
    ioredisCluster([{ host: 'a', port: 7000 }, `redis://:${SECRET}@b:7001`, 7002], { password: SECRET, tls: {} }),
    'a cluster client of ioredis',
    'rediss-cluster://:<password>@a:7000,b:7001,localhost:7002',
  ],
  [
    'node-redis',
    nodeRedis({ url: `redis://app:${SECRET}@h:6380/2`, ...LOGIN, socket: { host: 'h', port: 6380 }, database: 2 }),
    'a client of node-redis',
    'redis://app:<password>@h:6380/2',
  ],
  ['node-redis: tls', nodeRedis({ socket: { host: 'h', tls: true } }), 'a client of node-redis', 'rediss://h:6379'],
  ['node-redis: no options', nodeRedis(undefined), 'a client of node-redis', 'redis://localhost:6379'],
  [
    'node-redis: a cluster',
    nodeRedisCluster({ rootNodes: [{ url: `redis://:${SECRET}@a:7000` }, { socket: { host: 'b', port: 7001 } }] }),
    'a cluster client of node-redis',
    'redis-cluster://:<password>@a:7000,b:7001',
  ],
  ['node-redis 4: a cluster', cluster4, 'a cluster client of node-redis', 'redis-cluster://HOST:6379'],
  ['node-redis: a pool', pool, 'a client pool of node-redis', 'redis://HOST:6379'],
  ['node-redis: sentinels', sentinel, 'a sentinel client of node-redis', 'redis-sentinel://HOST:26379/MASTER'],
  ['node-redis 3', redis3, 'a client of node-redis', 'redis://:<password>@h:7000/1'],
  ['ioredis: a password as the host', ioredis({ host: `${SECRET}@h` }), 'a client of ioredis', 'redis://HOST:6379'],
  [
    'ioredis: a password as the user',
    ioredis({ username: SECRET }),
    'a client of ioredis',
    'redis://<username>@localhost:6379',
  ],
  ['ioredis: a password as the port', ioredis({ port: SECRET }), 'a client of ioredis', 'redis://localhost:6379'],
  ['ioredis: a password as the database', ioredis({ db: SECRET }), 'a client of ioredis', 'redis://localhost:6379'],
  [
    'ioredis: a password as the name of the master',
    ioredis({ sentinels: SENTINELS, name: `:${SECRET}@` }),
    'a client of ioredis',
    'redis-sentinel://a:26379,b:26379/MASTER',
  ],
]

describe('store: a client of another library', () => {
  for (const [what, client, named, url] of CLIENTS) {
    test(what, () => {
      const rest = (code) =>
        `argument must be the URL of a store. Received ${named}. leasehold opens its own connections, so give the URL: ${code}`
      for (const [call, name, code] of [
        [() => createLockClient(client), 'store', `createLockClient('${url}')`],
        [() => createLockClient({ store: client }), 'store', `{ store: '${url}' }`],
        [() => createLockClient([client, client, client]), 'store[0]', `'${url}'`],
        [() => createLockWorker({ store: client, key: 'k', startWork() {} }), 'store', `{ store: '${url}' }`],
      ]) {
        assert.deepEqual(errorOf(call), { code: TYPE, message: `The "${name}" ${rest(code)}` })
      }
    })

    test(`${what}: leasehold accepts the URL of the message`, (t) => {
      const example = url.replace('<password>', 'p').replace('<username>', 'u').replace('HOST', 'h')
      const locks = createLockClient(example)
      atEnd(t, () => locks.close())
    })
  }

  test('a worker that gets such a client suggests its URL', () => {
    const { message } = errorOf(() => createLockWorker({ client: ioredis(LOGIN), key: 'k', startWork() {} }))
    assert.match(
      message,
      /^The "client" argument must be a LockClient .* a client of ioredis: .*\{ store: 'redis:\/\/app:/,
    )
  })

  test('getters and proxies that throw do not break the check', () => {
    const fail = () => {
      throw new Error(SECRET)
    }
    const broken = Object.defineProperties(ioredis(), { options: { get: fail }, isCluster: { get: fail } })
    assert.match(errorOf(() => createLockClient(broken)).message, /a client of ioredis.*'redis:\/\/localhost:6379'/)
    const options = Object.defineProperty({ port: 1 }, 'host', { get: fail })
    assert.match(errorOf(() => createLockClient(nodeRedis({ socket: options }))).message, /'redis:\/\/localhost:1'/)
    for (const trap of ['get', 'getPrototypeOf', 'has', 'ownKeys']) {
      const proxy = new Proxy(ioredis(), { [trap]: fail })
      assert.throws(() => createLockClient({ store: proxy }), TypeError, trap)
    }
  })

  test('the message about a lock client says how to pass it', (t) => {
    const locks = createLockClient('memory:mistakes')
    atEnd(t, () => locks.close())
    assert.match(errorOf(() => createLockClient(locks)).message, /Received a lock client: use it as it is$/)
    assert.match(errorOf(() => createLockClient({ store: locks })).message, /Received a lock client: give its URL$/)
    assert.match(
      errorOf(() => createLockWorker(locks)).message,
      /Received a lock client: give it as \{ client, key, … \}$/,
    )
  })
})

describe('store: options of another library', () => {
  const noUrl = 'The "store" argument must be of type string. Received'
  for (const [given, option, url] of [
    [{ host: 'cache', port: 6380 }, 'host', 'redis://cache:6380'],
    [{ port: 6380, db: 2, password: SECRET }, 'port', 'redis://:<password>@localhost:6380/2'],
    [{ socket: { host: 'h', tls: true }, database: 1 }, 'socket', 'rediss://h:6379/1'],
    [{ path: '/run/r.sock' }, 'path', 'redis+unix:///run/r.sock'],
    [{ sentinels: SENTINELS, name: 'm' }, 'sentinels', 'redis-sentinel://a:26379,b:26379/m'],
    [{ rootNodes: [{ url: `redis://:${SECRET}@a:7000` }] }, 'rootNodes', 'redis-cluster://:<password>@a:7000'],
  ]) {
    test(`${option}: ${url}`, () => {
      const { message, code } = errorOf(() => createLockClient(given))
      assert.equal(message, `Unknown option "${option}": write it into the URL of the store, { store: '${url}' }`)
      assert.equal(code, VALUE)
    })
  }

  test('connection options as the store: the message shows the URL to write', () => {
    for (const [store, url] of [
      [{ host: 'cache', port: 6380 }, 'redis://cache:6380'],
      [{ host: 'cache', password: SECRET, db: 1 }, 'redis://:<password>@cache:6379/1'],
      [{ socket: { host: 'h', tls: true } }, 'rediss://h:6379'],
      [{ sentinels: SENTINELS, name: 'm' }, 'redis-sentinel://a:26379,b:26379/m'],
    ]) {
      const { message } = errorOf(() => createLockClient({ store }))
      assert.equal(message, `${noUrl} the options of a connection: write them as a URL, { store: '${url}' }`)
    }
    const three = ['a', 'b', 'c'].map((host) => ({ host }))
    const { message } = errorOf(() => createLockClient(three))
    assert.match(
      message,
      /^The "store\[0\]" argument .* the options of a connection: write them as a URL, 'redis:\/\/a:6379'$/,
    )
    const { url, ...others } = { url: `redis://:${SECRET}@h` }
    assert.equal(
      errorOf(() => createLockClient({ store: { url } })).message,
      `${noUrl} an object with a URL: give the URL itself`,
    )
    assert.equal(errorOf(() => createLockClient({ store: others })).message, `${noUrl} an instance of Object`)
  })

  test('several hosts in one URL and parameters of another library get advice', () => {
    assert.match(errorOf(() => createLockClient('redis://a,b,c')).message, /a list of URLs for a quorum/)
    const { message } = errorOf(() => createLockClient(`redis://:${SECRET}@h?keyPrefix=x`))
    assert.match(message, /unknown parameter "keyprefix": give prefix in the options/)
  })

  test('a worker that gets such options suggests the URL', () => {
    const { message } = errorOf(() => createLockWorker({ host: 'cache', port: 6380, key: 'k', startWork() {} }))
    assert.match(message, /^Unknown option "host": .*'redis:\/\/cache:6380'/)
  })

  test('host and port as two arguments get advice', () => {
    for (const call of [() => createLockClient('localhost', 6379), () => createLockClient(6379, 'localhost')]) {
      assert.match(errorOf(call).message, /takes one argument: write host and port as one URL, 'redis:\/\/HOST:PORT'$/)
    }
  })

  test('a promise, a map and a URL object get advice', () => {
    const promise =
      /^The "options" argument must be an object, such as \{ store: … \}\. Received a promise: await it first$/
    assert.match(errorOf(() => createLockClient(Promise.resolve('redis://h'))).message, promise)
    assert.match(
      errorOf(() => createLockClient({ store: Promise.resolve('redis://h') })).message,
      /promise: await it first$/,
    )
    assert.match(
      errorOf(() => createLockClient(new Map([['store', 'redis://h']]))).message,
      /Received an instance of Map$/,
    )
    const url = new URL(`redis://:${SECRET}@h`)
    assert.match(errorOf(() => createLockClient({ store: url })).message, /Received a URL object: give its href$/)
  })
})

describe('store: a text that is not a URL', () => {
  const blank = 'begins with a blank or a line break: remove it'
  const end = 'ends with a blank or a line break: remove it'
  const quotes = 'begins with a quotation mark: remove the marks around the URL'
  const noScheme = 'has no scheme: write redis:// before host and port, as in redis://localhost:6379'
  const login = 'has no scheme: write redis://USER:PASSWORD@HOST:6379'
  const file = 'has no scheme: if it is the path of a file, write sqlite:PATH'
  const meant = (url) => `has no scheme: did you mean ${url}?`
  const scheme = (url) => `has an unknown scheme: did you mean ${url}?`
  for (const [text, problem] of [
    ['localhost:6379', meant('redis://localhost:6379')],
    ['localhost', meant('redis://localhost:6379')],
    ['127.0.0.1:6379', meant('redis://127.0.0.1:6379')],
    ['127.0.0.1', meant('redis://127.0.0.1:6379')],
    ['[::1]:6379', meant('redis://[::1]:6379')],
    ['redis:6379', meant('redis://redis:6379')],
    ['cache.example.com:6380/2', meant('redis://cache.example.com:6380/2')],
    // These names and this number may be a user and a password, so the message shows none of them.
    ['myhost:6380', noScheme],
    [`${SECRET}:6379`, noScheme],
    [`${SECRET}@h:6379`, login],
    [`user:${SECRET}@localhost:6379`, login],
    [`${SECRET}@10.0.0.1:6379/0`, login],
    [`${SECRET}.example@h.example.com:6379`, login],
    ['reddis://h', scheme('redis://')],
    ['RIDES://h', scheme('redis://')],
    [`redsi://:${SECRET}@h`, scheme('redis://')],
    ['rediss+sentinel://h/m', scheme('rediss-sentinel://')],
    ['redis+sentinel://h/m', scheme('redis-sentinel://')],
    ['redis+cluster://h', scheme('redis-cluster://')],
    ['valkey://h', scheme('redis://')],
    ['unix:///run/r.sock', scheme('redis+unix://')],
    ['file:locks.db', scheme('sqlite:PATH')],
    ['sqlit://locks.db', scheme('sqlite:PATH')],
    ...['postgres', 'postgresql'].map((name) => [
      `${name}://u:${SECRET}@h/db`,
      'names PostgreSQL, which is not supported yet: use redis://HOST:6379, or sqlite:PATH for the processes of one host',
    ]),
    [
      `HTTP://u:${SECRET}@h:6379`,
      'has the scheme http://, which no store has: use redis://HOST:6379, or sqlite:PATH for the processes of one host',
    ],
    ['./locks.db', file],
    ['/var/lib/locks', file],
    ['C:\\locks.db', file],
    ['locks.sqlite3', file],
    [':memory:', meant('memory:NAME')],
    ['memory', 'is only the scheme of a store: write memory:NAME'],
    ['redis', 'is only the scheme of a store: write redis://HOST:6379'],
    [` redis://:${SECRET}@h`, blank],
    ['\nredis://h', blank],
    [`redis://:${SECRET}@h\n`, end],
    [`"redis://:${SECRET}@h"`, quotes],
    ["'redis://h'", quotes],
    ['undefined', 'is the text "undefined": set the variable that it comes from'],
    ['null', 'is the text "null": set the variable that it comes from'],
    ['[object Object]', 'is the text "[object Object]": give the URL as a string, not an object'],
  ]) {
    test(JSON.stringify(text.replace(SECRET, 'SECRET')), () => {
      const { message, code } = errorOf(() => createLockClient(text))
      assert.deepEqual([code, message], [VALUE, `The "store" argument ${problem}`])
    })
  }

  for (const text of [
    SECRET,
    `gopher://${SECRET}@h`,
    `http://${SECRET}.example:6379`,
    `${SECRET}://h`,
    `redis:${SECRET}`,
  ]) {
    test(`a text without a hint: ${text.replace(SECRET, 'SECRET')}`, () => {
      assert.match(errorOf(() => createLockClient(text)).message, /scheme|slashes/)
    })
  }

  test('a blank at the end of a name or a path belongs to it', (t) => {
    const locks = createLockClient('memory:a ')
    atEnd(t, () => locks.close())
  })
})

describe('store: a mistake in the environment', () => {
  const set = (t, name, value) => {
    for (const other of ['LEASEHOLD_URL', 'REDIS_URL']) {
      const before = process.env[other]
      delete process.env[other]
      atEnd(t, () => {
        if (before === undefined) delete process.env[other]
        else process.env[other] = before
      })
    }
    process.env[name] = value
  }
  for (const [name, value, pattern] of [
    [
      'REDIS_URL',
      'localhost:6379',
      /^The environment variable REDIS_URL has no scheme: did you mean redis:\/\/localhost:6379\?$/,
    ],
    ['LEASEHOLD_URL', `"redis://:${SECRET}@h"`, /^The environment variable LEASEHOLD_URL begins with a quotation mark/],
    ['REDIS_URL', `redis://a redis://:${SECRET}@b`, /^The environment variable REDIS_URL must be one URL, or those of/],
    ['REDIS_URL', 'redis://a redis://b reddis://c', /^The environment variable REDIS_URL\[2\] has an unknown scheme/],
    [
      'REDIS_URL',
      `gopher://${SECRET}@h`,
      /scheme of a store .* \(the environment variable REDIS_URL names this store\)$/,
    ],
  ]) {
    test(`${name}: ${value.replace(SECRET, 'SECRET')}`, (t) => {
      set(t, name, value)
      assert.match(errorOf(() => createLockClient()).message, pattern)
    })
  }

  test('the message about a store in the code does not mention the environment', (t) => {
    set(t, 'REDIS_URL', 'redis://h')
    assert.doesNotMatch(errorOf(() => createLockClient('gopher://h')).message, /environment/)
  })
})

test('a client of another library under an unknown option: the error has the URL to give', () => {
  for (const name of ['client', 'redis', 'connection']) {
    assert.deepEqual(
      errorOf(() => createLockClient({ [name]: ioredis({ db: 2 }) })),
      {
        code: VALUE,
        message:
          `Unknown option "${name}": it is a client of ioredis; leasehold opens its own connections, so give the URL: ` +
          "{ store: 'redis://localhost:6379/2' }",
      },
    )
  }
})

test('the error of a lock file in a file system that takes no new files says what to do', {
  skip: process.platform !== 'linux' && 'needs /proc',
}, async (t) => {
  const locks = createLockClient('sqlite:/proc/leasehold.db')
  atEnd(t, () => locks.close())
  await assert.rejects(locks.tryAcquire('k'), (error) => {
    assert.equal(error.code, 'ERR_STORE_UNAVAILABLE')
    assert.match(error.message, /\/proc\/leasehold\.db can't be created .*: .*; name a lock file in another directory/)
    return true
  })
})
