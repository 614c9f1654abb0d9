// Text from servers and other clients can't control a terminal or forge lines of a log.

import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { leasehold, run } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { bulk, list, startFakeRedis } from '../support/fake-redis.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { overStores, sharedStoreNames, storeNames } from '../support/stores.mjs'

/**
 * Clears the screen, forges a line, sets colors in 8 bits, and changes the direction of the text.
 */
const HOSTILE = 'a\u001b[2Jb\u001b]0;c\u0007\rd\nleasehold: all is well\u007f\u009b31m\u202egro.live\u2066\u200e\u2028e'
/** The same text as messages show it. */
const SHOWN =
  'a\\u{1b}[2Jb\\u{1b}]0;c\\u{7}\\rd\\nleasehold: all is well\\u{7f}\\u{9b}31m\\u{202e}gro.live\\u{2066}\\u{200e}\\u{2028}e'
/** The same text in quotes, as JSON. */
const QUOTED = SHOWN.replace(/\\u\{(\w+)\}/g, (_, hex) => `\\u${hex.padStart(4, '0')}`)
// biome-ignore lint/suspicious/noControlCharactersInRegex: the test is about these characters
const STEERS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/

/** Fails if `text` has a character that controls a terminal. Allows line feeds if `lines`. */
function assertTame(text, { lines = false } = {}) {
  assert.ok(!STEERS.test(text), JSON.stringify(text))
  if (!lines) assert.ok(!text.includes('\n'), JSON.stringify(text))
}

/**
 * Calls methods of a client of the store. Returns the message of each error, and of the errors in
 * it.
 */
async function messagesOf(t, store, options = {}) {
  const locks = createLockClient({ store, storeTimeout: 3_000, ...options })
  atEnd(t, () => locks.close())
  const told = []
  const tell = (error) => {
    told.push(error.message, ...(error.votes ?? []).map(({ message }) => message ?? ''))
    if (error.cause instanceof Error) tell(error.cause)
  }
  locks.on('error', tell)
  const { findings, stores } = await locks.diagnose()
  told.push(...findings.map(({ message }) => message), ...stores.map((facts) => `${facts.store} ${facts.version}`))
  for (const ask of [
    () => locks.tryAcquire('k'),
    () => locks.acquire('k', { wait: 200 }),
    () => locks.inspect('k'),
    () => locks.list(),
    () => locks.ready(),
  ]) {
    await ask().catch(tell)
  }
  return told
}

const WAITED = ['--wait', '200ms', '--', 'true']
/** The commands that print what a store says in each way: as an error, as facts, and as JSON. */
const FEW = [['ls'], ['run', 'k', ...WAITED], ['doctor'], ['doctor', '--json']]
/** The commands that reach the store. */
const ALL = [
  ...FEW,
  ['ls', '--json'],
  ['inspect', 'k'],
  ['inspect', 'k', '--json'],
  ['watch', '--looks', '1'],
  ['run', 'k', '--json', ...WAITED],
]

/** Runs the commands, checks their output, and returns it. */
async function printed(t, store, commands) {
  let all = ''
  for (const [name, ...words] of commands) {
    const { stdout, stderr } = await run(t, [name, '--store', store, '--store-timeout', '2s', ...words])
    assertTame(stdout, { lines: true })
    assertTame(stderr, { lines: true })
    assert.doesNotMatch(stdout + stderr, /^leasehold: all is well/m, `${name} shows a forged line`)
    all += stdout + stderr
  }
  return all
}

// Run four tests at a time: their commands mostly wait for servers that do not serve them.
describe('hostile text of a Redis server', {
  skip: !storeNames.includes('redis'),
  timeout: 240_000,
  concurrency: 4,
}, () => {
  test('control characters in an error are escaped', async (t) => {
    const port = await startFakeRedis(t, {
      EVALSHA: ([, , keys]) => (keys === '0' ? undefined : `-ERR ${HOSTILE}\r\n`),
      SCAN: () => `-ERR ${HOSTILE}\r\n`,
    })
    const store = `redis://127.0.0.1:${port}`
    const messages = await messagesOf(t, store)
    for (const message of messages) assertTame(message)
    assert.ok(messages.filter((message) => message.includes(`ERR ${SHOWN}`)).length >= 3, messages.join('\n'))
    assert.ok((await printed(t, store, ALL)).includes(`ERR ${SHOWN}`))
  })

  test('an endless error is cut, and its control characters are escaped', async (t) => {
    const port = await startFakeRedis(t, {
      EVALSHA: ([, , keys]) => (keys === '0' ? undefined : `-ERR ${'\u001b'.repeat(60_000)}\r\n`),
    })
    for (const message of await messagesOf(t, `redis://127.0.0.1:${port}`)) {
      assertTame(message)
      assert.ok(message.length < 2_500, `${message.length} characters`)
    }
  })

  test('control characters in an error of the handshake are escaped', async (t) => {
    const port = await startFakeRedis(t, { SCRIPT: () => `-NOPERM ${HOSTILE}\r\n` })
    const messages = await messagesOf(t, `redis://127.0.0.1:${port}`)
    for (const message of messages) assertTame(message)
    assert.ok(
      messages.some((message) => message.includes(`NOPERM ${SHOWN}`)),
      messages.join('\n'),
    )
  })

  test('no message shows a password that the error of a refused login repeats', async (t) => {
    for (const secret of ['hunter2-is-a-secret', 'hunter2\u001b[2Jis\na-secret']) {
      const port = await startFakeRedis(t, { AUTH: ([, word]) => `-WRONGPASS no: ${HOSTILE} ${word}\r\n` })
      const messages = await messagesOf(t, `redis://:${encodeURIComponent(secret)}@127.0.0.1:${port}`)
      for (const message of messages) {
        assertTame(message)
        assert.doesNotMatch(message, /hunter2|a-secret/)
      }
    }
  })

  const SECRET = 'hunter2-is-a-secret'
  const facts = (mode, said = '') =>
    bulk(
      `redis_version:7.0.15${said}\r\nredis_mode:${mode}\r\nrole:master\r\nmaxmemory:100\r\nused_memory:99\r\n${
        said === '' ? '' : `maxmemory_policy:${said}\r\nrun_id:${said}\r\n`
      }`,
    )
  const mapTo = (host, port) => list(list(':0\r\n', ':16383\r\n', list(bulk(host), `:${port}\r\n`)))
  for (const [what, scheme, says] of [
    [
      'the facts of a server',
      'redis',
      { INFO: () => facts('standalone', SECRET), CONFIG: ([, , name]) => list(bulk(name), bulk(SECRET)) },
    ],
    ["a cluster's map", 'redis-cluster', { INFO: () => facts('cluster'), CLUSTER: () => mapTo(`${SECRET}.x`, 6379) }],
    [
      'a redirection',
      'redis-cluster',
      {
        INFO: () => facts('cluster'),
        CLUSTER: (_, socket) => mapTo('127.0.0.1', socket.localPort),
        EVALSHA: ([, , keys]) => (keys === '0' ? undefined : `-MOVED 1 ${SECRET}:6379\r\n`),
      },
    ],
    [
      "a sentinel's master",
      'redis-sentinel',
      { SENTINEL: ([, what]) => (what === 'get-master-addr-by-name' ? list(bulk(SECRET), bulk('6379')) : undefined) },
    ],
  ]) {
    test(`no message shows the password in ${what}`, async (t) => {
      let isTold = false
      const port = await startFakeRedis(t, {
        AUTH: (words) => {
          isTold ||= words.at(-1) === SECRET
          return '+OK\r\n'
        },
        ...says,
      })
      // The master's password does not go to sentinels, so a sentinel knows only its own.
      const isSentinel = scheme === 'redis-sentinel'
      const store = isSentinel ? `${scheme}://127.0.0.1:${port}/main` : `${scheme}://:${SECRET}@127.0.0.1:${port}`
      const messages = await messagesOf(t, store, isSentinel ? { sentinelPassword: SECRET } : {})
      assert.ok(isTold && messages.length > 0, 'the server got the password, and the client reported something')
      for (const message of messages) assert.ok(!message.includes('hunter2'), message)
      if (!isSentinel) assert.ok(!(await printed(t, store, FEW)).includes('hunter2'))
    })
  }

  for (const [what, version] of [
    ['a version', `7.0.15${HOSTILE.replace('\n', '')}`],
    ['an old version', `5.0.0${HOSTILE.replace('\n', '')}`],
  ]) {
    test(`control characters in ${what} are escaped`, async (t) => {
      const info = `redis_version:${version}\r\nrole:master\r\nmaxmemory:100\r\nmaxmemory_policy:${HOSTILE.replace('\n', '')}\r\nused_memory:99\r\n`
      const port = await startFakeRedis(t, {
        INFO: () => bulk(info),
        CONFIG: ([, , name]) => list(bulk(name), bulk(HOSTILE)),
      })
      const store = `redis://127.0.0.1:${port}`
      const messages = await messagesOf(t, store)
      for (const message of messages) assertTame(message)
      assert.ok(
        messages.some((message) => message.includes(`.0${what === 'a version' ? '.15' : ''}a\\u{1b}[2Jb`)),
        messages.join('\n'),
      )
      assert.ok((await printed(t, store, FEW)).includes('a\\u{1b}[2Jb'))
    })
  }

  test("control characters in a sentinel's address of the master are escaped", async (t) => {
    const says = (words) => (words[1] === 'get-master-addr-by-name' ? list(bulk(HOSTILE), bulk('6379')) : undefined)
    const port = await startFakeRedis(t, { SENTINEL: (words) => says(words.map((word) => word.toLowerCase())) })
    const store = `redis-sentinel://127.0.0.1:${port}/main`
    const messages = await messagesOf(t, store)
    for (const message of messages) assertTame(message)
    assert.ok(
      messages.some((message) => message.includes(SHOWN)),
      messages.join('\n'),
    )
    assert.ok((await printed(t, store, FEW)).includes(SHOWN))
  })

  test("control characters in a cluster's addresses and redirections are escaped", async (t) => {
    const cluster = bulk('redis_version:7.0.15\r\nredis_mode:cluster\r\nrole:master\r\n')
    let port = 0
    const slots = (host, at) => list(list(':0\r\n', ':16383\r\n', list(bulk(host), `:${at}\r\n`)))
    // If the nodes do not agree, the client follows the redirection and does not show the address.
    for (const [says, shown] of [
      [{ CLUSTER: () => slots(HOSTILE, 6379) }, 'a\\u{1b}[2Jb'],
      [
        {
          CLUSTER: () => slots('127.0.0.1', port),
          EVALSHA: ([, , keys]) => (keys === '0' ? undefined : `-MOVED 1 ${HOSTILE.replaceAll(' ', '_')}:6379\r\n`),
        },
        'do not agree',
      ],
      [
        {
          CLUSTER: () => slots('127.0.0.1', port),
          EVALSHA: ([, , keys]) => (keys === '0' ? undefined : `-CLUSTERDOWN ${HOSTILE}\r\n`),
        },
        `CLUSTERDOWN ${SHOWN}`,
      ],
    ]) {
      port = await startFakeRedis(t, { INFO: () => cluster, ...says })
      const store = `redis-cluster://127.0.0.1:${port}`
      const messages = await messagesOf(t, store)
      for (const message of messages) assertTame(message)
      assert.ok(
        messages.some((message) => message.includes(shown)),
        messages.join('\n'),
      )
      for (const words of [['ls'], ['inspect', 'k'], ['doctor']]) {
        const { stdout, stderr } = await run(t, [...words, '--store', store, '--store-timeout', '2s'])
        assertTame(stdout + stderr, { lines: true })
      }
    }
  })

  test('control characters in names that no leasehold client would have are escaped', async (t) => {
    const server = await startRedis(t)
    const redis = await server.command()
    const name = `${HOSTILE} ${'x'.repeat(100_000)}`
    await redis('SET', 'lock:k', 'token', 'PX', '100000')
    await redis('SET', '{lock:k}:fence', `1784000000000000 token ${name}`, 'PX', '100000')
    const { stdout } = await run(t, ['ls', '--store', server.url()])
    assertTame(stdout, { lines: true })
    assert.ok(stdout.includes(SHOWN), stdout.slice(0, 2_000))
    assert.ok(stdout.length < 4_000, `${stdout.length} characters`)
    await printed(t, server.url(), ALL)
  })
})

test('the command line escapes control characters in its arguments', async (t) => {
  const folder = join(temporaryFolder(t), `a${HOSTILE.replaceAll('/', '')}`)
  mkdirSync(folder)
  const store = ['--store', `sqlite:${join(folder, 'locks.db')}`]
  const gone = ['--store', `sqlite:${join(folder, HOSTILE, 'locks.db')}`]
  for (const words of [
    [HOSTILE],
    [`--${HOSTILE}`],
    [`-${HOSTILE}`],
    ['help', HOSTILE],
    ['ls', `--${HOSTILE}`],
    ['ls', '--store', HOSTILE],
    ['ls', '--store', `memory:${HOSTILE}`],
    ['inspect', HOSTILE, HOSTILE, ...store],
    ['inspect', HOSTILE, ...store],
    ['inspect', HOSTILE, ...gone],
    ['release', HOSTILE, ...store],
    ['watch', '--looks', HOSTILE, ...store],
    ['run', HOSTILE, '--ttl', HOSTILE, ...store, '--', 'true'],
    ['run', HOSTILE, '--ttl', '10s', '--max-hold', `5s`, ...store, '--', 'true'],
    ['run', HOSTILE, '--verbose', ...store, '--', 'true'],
    ['run', HOSTILE, '--verbose', ...store, '--', HOSTILE],
    ['doctor', ...store],
    ['doctor', ...gone],
    ['doctor', '--json', ...store],
  ]) {
    const { stdout, stderr } = await run(t, words)
    assert.ok(stdout + stderr !== '' || words[0] === 'ls', words[0])
    for (const text of [stdout, stderr]) {
      assertTame(text, { lines: true })
      assert.doesNotMatch(text, /^leasehold: all is well/m, `${words[0]} shows a forged line`)
    }
  }
})

overStores(
  'hostile names of clients and locks on',
  (store) => {
    test('ls, inspect, watch and release escape control characters', async (t) => {
      const prefix = `${store.key()}:`
      const key = `${HOSTILE}-key`
      const holder = store.client(t, { name: `${HOSTILE}-holder`, prefix, ttl: 20_000 })
      const waiter = store.client(t, { name: `${HOSTILE}-waiter`, prefix })
      await holder.acquire(key)
      const over = new AbortController()
      const waits = waiter.acquire(key, { wait: 60_000, signal: over.signal }).catch(() => {})
      atEnd(t, async () => {
        over.abort()
        await waits
      })
      await until('the waiter to wait', async () => (await holder.inspect(key)).waiters.length === 1)
      const store_ = ['--store', store.url, '--prefix', prefix]
      for (const words of [['ls'], ['inspect', key], ['watch', '--looks', '1'], ['release', key, '--force']]) {
        for (const more of [[], ['--json']]) {
          const { stdout, stderr } = await run(t, [...words, ...more, ...store_])
          assertTame(stdout, { lines: true })
          assertTame(stderr, { lines: true })
          assert.doesNotMatch(stdout + stderr, /^leasehold: all is well/m)
          if (more.length > 0 && stdout !== '') {
            const told = JSON.parse(stdout)
            assert.equal(told.key ?? told.locks[0].key, key, 'JSON has the key as it was written')
          } else if (words[0] !== 'release') {
            const shown = words[0] === 'ls' ? `${SHOWN}-key` : `"${QUOTED}-key"`
            assert.ok(stdout.includes(shown) && stdout.includes(`${SHOWN}-holder`), stdout)
          }
        }
      }
      await assert.rejects(holder.acquire(key, { wait: 50 }), ({ message }) => {
        assertTame(message)
        return true
      })
      const waiting = leasehold(t, ['run', key, '--wait', '300ms', ...store_, '--', 'true'])
      const { stderr } = await waiting.ended
      assertTame(stderr, { lines: true })
    })
  },
  sharedStoreNames,
)
