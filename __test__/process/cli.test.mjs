// Tests what the command `leasehold` reports of locks and stores, as text and as JSON.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { leasehold, run } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

const manifest = createRequire(import.meta.url)('leasehold/package.json')
const COMMANDS = ['run', 'ls', 'inspect', 'watch', 'release', 'doctor', 'demo', 'bench']

overStores(
  'leasehold on',
  (store) => {
    test('ls and inspect show a lock, and release takes it away, as text and as JSON', async (t) => {
      // The key has escapes: names that other clients chose must not control our terminal.
      const [prefix, key] = [`${store.key()}:`, 'a\u001b[2Jb']
      const locks = store.client(t, { name: 'holder', prefix, ttl: 20_000 })
      const other = store.client(t, { name: 'waiter', prefix })
      const call = (...words) => run(t, [...words, '--store', store.url, '--prefix', prefix])
      const lease = await locks.acquire(key)
      await locks.readWriteLock('r').read.acquire()
      const next = other.acquire(key, { wait: 30_000 })
      await until('the waiter to wait', async () => (await locks.inspect(key)).waiters.length === 1)

      const listed = await call('ls')
      assert.equal(listed.code, 0, listed.stderr)
      const [head, first, second] = listed.stdout.split('\n').map((line) => line.split(/ {2,}/))
      assert.deepEqual(head, ['KEY', 'HELD', 'HOLDER', 'FENCE', 'REMAINING', 'WAITERS'])
      assert.deepEqual(first.slice(0, 4), ['a\\u{1b}[2Jb', 'alone', 'holder', String(lease.fence)])
      assert.equal(first[5], '1')
      assert.deepEqual(second.slice(0, 3), ['r', 'shared', 'holder'])
      const list = JSON.parse((await call('ls', '--json', 'r*')).stdout)
      assert.deepEqual([list.complete, list.locks.map((lock) => lock.key)], [true, ['r']])
      assert.ok(!('waiting' in list.locks[0]), 'the list counts no waiters of the command itself')

      const inspected = await call('inspect', key)
      assert.equal(inspected.code, 0)
      assert.match(inspected.stdout, /^"a\\u001b\[2Jb" is held\n/)
      assert.match(inspected.stdout, new RegExp(`by holder, fence ${lease.fence}, ends in .*\\n.*\\n {2}waiter, for`))
      const info = JSON.parse((await call('inspect', key, '--json')).stdout)
      assert.deepEqual([info.key, info.held, info.fence], [key, true, lease.fence])
      assert.deepEqual([info.waiters.map(({ holder }) => holder), 'waiting' in info], [['waiter'], false])
      const none = await call('inspect', 'free')
      assert.deepEqual([none.code, none.stdout], [1, '"free" is free\n'])
      const seen = await call('watch', 'r*', '--looks', '1')
      assert.match(seen.stdout, /Z {2}"r" held by holder, fence \d+, 0 waiting\n$/)

      const { stderr } = await call('inspect', '')
      assert.equal(stderr, 'leasehold: The "key" argument must not be an empty string\n', 'it names no function')
      for (const words of [['--force'], ['--yes'], []]) {
        const refused = await call('release', key, ...words)
        assert.deepEqual([refused.code, refused.stdout], [64, ''])
      }
      assert.equal((await locks.inspect(key)).fence, lease.fence, 'the lock is still held')
      const released = await call('release', key, '--force', '--yes', '--json')
      assert.equal(released.code, 0, released.stderr)
      assert.equal(JSON.parse(released.stdout).released, true)
      await (await next).release()
      const free = await call('release', key, '--force', '-y')
      assert.deepEqual([free.code, free.stdout], [1, '"a\\u001b[2Jb" is free already\n'])
    })

    test('watch writes a line when a lock is held, changes hands, and is free', async (t) => {
      const prefix = `${store.key()}:`
      const [a, b] = ['a', 'b'].map((name) => store.client(t, { name, prefix }))
      const words = ['watch', 'k*', '--json', '--interval', '50ms', '--store', store.url, '--prefix', prefix]
      const watching = leasehold(t, words)
      const lease = await a.acquire('key')
      await watching.says(/"event":"held","key":"key".*"holder":"a"/)
      const next = b.acquire('key', { wait: 20_000 })
      await until('b to wait', async () => (await a.inspect('key')).waiters.length === 1)
      await lease.release()
      await watching.says(/"event":"changed","key":"key".*"holder":"b"/)
      await (await next).release()
      await watching.says(/"event":"free","key":"key"/)
      watching.signal('SIGINT')
      const { code, stdout } = await watching.ended
      assert.equal(code, 0)
      assert.doesNotMatch(stdout, /"waiting"/)
    })
    test('ls and inspect show an id that was done once as remembered, not as held', async (t) => {
      const [prefix, id] = [`${store.key()}:`, 'mail@once:user%40b']
      const locks = store.client(t, { name: 'web-1', prefix })
      const call = (...words) => run(t, [...words, '--store', store.url, '--prefix', prefix])
      const { ran } = await locks.once('mail', 'user@b', () => {}, { keep: 600_000 })
      assert.equal(ran, true)
      const { fence } = await locks.inspect(id)

      const { code, stdout } = await call('inspect', id)
      assert.equal(code, 0)
      const [head, details, ...rest] = stdout.split('\n')
      assert.equal(head, `"${id}" is remembered as done, or its work still runs`)
      assert.match(details, new RegExp(`^  by web-1, fence ${fence}, for (10 m 0|9 m \\d+) s more$`))
      assert.deepEqual(rest, [''], 'an id has no waiters')
      const [, row] = (await call('ls', '*@once:*')).stdout.split('\n').map((line) => line.split(/ {2,}/))
      assert.deepEqual(row.slice(0, 4), [id, 'once', 'web-1', String(fence)])
      const watched = await call('watch', '*@once:*', '--looks', '1')
      assert.match(watched.stdout, new RegExp(`  "${id}" remembered: by web-1, fence ${fence}\n$`))

      const released = await call('release', id, '--force', '--yes')
      assert.deepEqual([released.code, released.stdout], [0, `"${id}" is forgotten, so its work may run again\n`])
      assert.match(released.stderr, /is remembered as done/)
      for (const words of [['inspect'], ['release', '--force', '--yes']]) {
        const gone = await call(...words, id)
        assert.deepEqual([gone.code, gone.stdout], [1, `"${id}" is not remembered\n`])
      }
      const again = await locks.once('mail', 'user@b', () => {})
      assert.equal(again.ran, true)
    })
  },
  processStoreNames,
)

describe('leasehold', { timeout: 120_000 }, () => {
  test('doctor reports problems, and fails if locks can’t be acquired', async (t) => {
    // This server forgets locks when its memory is full, which is a warning.
    const args = ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru']
    const store = (await startRedis(t, { args })).url()
    const fit = await run(t, ['doctor', '-s', store])
    assert.equal(fit.code, 0, fit.stderr)
    assert.match(fit.stdout, /^warning eviction$/m)
    assert.equal(fit.stdout.split(store).length, 2, `it is named once:\n${fit.stdout}`)
    assert.ok(!fit.stdout.includes('\u001b'), 'only a terminal gets colors')
    const coloured = { FORCE_COLOR: '1' }
    assert.ok((await run(t, ['doctor', '-s', store], coloured)).stdout.includes('\u001b'))
    assert.ok(!(await run(t, ['doctor', '-s', store], { ...coloured, NO_COLOR: '1' })).stdout.includes('\u001b'))
    assert.equal((await run(t, ['doctor', '-s', store, '--strict'])).code, 1)
    const other = (await startRedis(t)).url()
    const doctor = (...urls) => run(t, ['doctor', ...urls.flatMap((url) => ['-s', url])])
    const nodes = [store, other, 'redis://127.0.0.1:1']
    const quorum = await doctor(...nodes)
    assert.equal(quorum.code, 0, quorum.stderr)
    for (const url of nodes) {
      const heads = quorum.stdout.split('\n').filter((line) => line === url || line.startsWith(`${url},`))
      assert.equal(heads.length, 1, `${url}:\n${quorum.stdout}`)
    }
    assert.match(quorum.stdout, /\nredis:\/\/127.0.0.1:1\nwarning unreachable\n +can't be reached .*refused/)
    assert.match(quorum.stdout, /^warning bare-majority\n +only 2 of the quorum's 3 nodes .*redis:\/\/127.0.0.1:1$/m)
    const twins = await doctor(store, other, store.replace('127.0.0.1', 'localhost'))
    assert.equal(twins.code, 1)
    assert.match(
      twins.stdout,
      /^error {3}same-server\n +two nodes, redis:.* and redis:.*, are one and the same server.*$/m,
    )
    assert.match(twins.stdout, /^not fit for locks: 1 error$/m)
    const alone = await run(t, ['doctor', '-s', other, '--min-replicas', '1'])
    assert.equal(alone.code, 1)
    assert.match(alone.stdout, /^error {3}too-few-replicas$/m)
    const gone = await run(t, ['doctor', '--json', '-s', 'redis://:hunter2@127.0.0.1:1'])
    assert.equal(gone.code, 1)
    const diagnosis = JSON.parse(gone.stdout)
    assert.deepEqual([diagnosis.ok, diagnosis.findings[0].level], [false, 'error'])
    assert.doesNotMatch(gone.stdout + gone.stderr, /hunter2/)
  })

  test('bench measures one contender, four contenders and hand-overs', async (t) => {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const { code, stdout, stderr } = await run(t, [
      'bench',
      '-s',
      store,
      '--time',
      '200ms',
      '--parallel',
      '4',
      '--json',
    ])
    assert.equal(code, 0, stderr)
    const { measured } = JSON.parse(stdout)
    assert.deepEqual(
      measured.map(({ what }) => what),
      ['one at a time', '4 at a time', 'hand-over'],
    )
    for (const { perSecond, p50, p99 } of measured) assert.ok(perSecond > 1 && p50 > 0 && p99 >= p50, stdout)
  })

  test('demo --without-lock reports the faults as JSON', async (t) => {
    const { code, stdout, stderr } = await run(t, ['demo', '--without-lock', '--json'])
    assert.equal(code, 1, stderr)
    const { ok, faults } = JSON.parse(stdout)
    assert.ok(!ok && faults.length > 0, stdout)
  })

  test('every command has a help text, and the version is that of the package', async (t) => {
    const help = await run(t, ['--help'])
    assert.equal(help.code, 0)
    assert.equal((await run(t, [])).stderr, help.stdout)
    await Promise.all(
      COMMANDS.map(async (name) => {
        assert.match(help.stdout, new RegExp(`^ {2}${name} +\\w`, 'm'))
        const { code, stdout } = await run(t, [name, '--help'])
        assert.equal(code, 0)
        for (const part of [`Usage: leasehold ${name}`, 'Options', 'Examples', `leasehold ${name}`, '--json']) {
          assert.ok(stdout.includes(part), `${name}: ${part}`)
        }
        assert.equal((await run(t, ['help', name])).stdout, stdout)
      }),
    )
    assert.equal((await run(t, ['--version'])).stdout, `${manifest.version}\n`)
  })

  for (const [words, message] of [
    [['lst'], /unknown command "lst"; did you mean leasehold ls\?/],
    [['ls', '--stroe', 'x'], /unknown option --stroe; did you mean --store\?/],
    [['ls', 'a', 'b'], /one argument too many, "b"/],
    [['inspect'], /too few arguments: leasehold inspect KEY/],
    [['run', 'k'], /leasehold run k -- COMMAND/],
    [['run', 'k', 'echo'], /put -- before the command/],
    [['run', 'k', '--'], /no command behind --/],
    [['run', 'k', '--wait', '10', '--', 'true'], /did you mean 10s\?/],
    [['run', 'k', '--wait', '1s', '--try', '--', 'true'], /leave out --wait/],
    [['run', 'k', '--ttl', '5ms', '--', 'true'], /: --ttl takes 10ms to 24\.8 days$/m],
    [['run', 'k', '--ttl', '600h', '--', 'true'], /: --ttl takes 10ms to 24\.8 days$/m],
    [['run', 'k', '--max-hold', '0', '--', 'true'], /: --max-hold takes 10ms to 24\.8 days$/m],
    [['run', 'k', '--max-hold', '1s', '--ttl', '2s', '--', 'true'], /: --max-hold takes no less than --ttl, .* 2s$/m],
    [['run', 'k', '--wait', '597h', '--', 'true'], /: --wait takes 0 to 24\.8 days$/m],
    [['run', 'k', '--grace', '597h', '--', 'true'], /: --grace takes 0 to 24\.8 days$/m],
    [['doctor', '--ttl', '0'], /: --ttl takes 10ms to 24\.8 days$/m],
    [['demo', '--ttl', '9ms'], /: --ttl takes 10ms to 24\.8 days$/m],
    [['watch', '--interval', '20ms'], /: --interval takes 50ms to 24\.8 days$/m],
    [['ls', '--store-timeout', '61s'], /: --store-timeout takes 10ms to 1m$/m],
    [['ls', '--min-replicas', '101'], /: --min-replicas takes a whole number, 0 to 100$/m],
    [['ls', '--min-replicas=-1'], /: --min-replicas takes a whole number, 0 to 100$/m],
    [['ls', '--min-replicas', '1.5'], /: --min-replicas takes a whole number, 0 to 100$/m],
    [
      ['ls', '--min-replicas', '1'],
      /a sqlite: store takes no minReplicas \(the environment variable LEASEHOLD_URL names this store\)$/m,
    ],
    [['ls', '--name', 'n'.repeat(256)], /: --name takes up to 255 bytes of UTF-8$/m],
    [['ls', '--store'], /--store needs a value/],
    [['ls', '--json=yes'], /--json takes no value/],
    [['ls', '--limit', '0'], /: --limit takes a whole number, 1 to 10000$/m],
    [['watch', '--limit', '10001'], /: --limit takes a whole number, 1 to 10000$/m],
    [['bench', '--parallel', '1'], /: --parallel takes a whole number, 2 to 1000$/m],
    [['ls', '--store', 'redis://a,redis://b,redis://c'], /"store" .* commas .*--store for each/],
    [['ls', '--store', 'redis://a redis://b redis://c'], /"store" .* blanks .*--store for each/],
    [['ls', '--store', 'mysql://x'], /has the scheme mysql:\/\/, which no store has/],
    [['--json', 'ls'], /a command comes before its options/],
  ]) {
    test(`wrong usage is reported in one line: ${words.join(' ')}`, async (t) => {
      const env = { LEASEHOLD_URL: `sqlite:${join(temporaryFolder(t), 'locks.db')}` }
      const { code, stdout, stderr } = await run(t, words, env)
      assert.deepEqual([code, stdout], [64, ''], stderr)
      assert.match(stderr, message)
      assert.equal(stderr.trim().split('\n').length, 1, stderr)
    })
  }

  const [secret, url] = ['s3cr3t', 'redis://:s3cr3t@127.0.0.1:1']
  for (const words of [
    ['doctor', url],
    [url, 'ls'],
    ['help', url],
    ['inspect', 'k', url],
    ['ls', 'p', url, '--json'],
    ['run', 'k', url, '--', 'true'],
    ['run', 'k', '--wait', url, '--', 'true'],
    ['ls', '--limit', url],
    ['ls', '--min-replicas', url],
    ['--password=s3cr3t', 'doctor'],
    ['doctor', '--password=s3cr3t'],
    ['doctor', `--${url}=1`],
    [`--${url}`, 'doctor'],
    ['ls', '--store', 'rediss://127.0.0.1:1', '--tls-key', `-----BEGIN PRIVATE KEY-----\n${secret}\n-----END`],
    ['ls', '--store', 'rediss://127.0.0.1:1', `--tls-cert=${secret}`, '--json'],
  ]) {
    test(`an error has no password: ${words.join(' ').replaceAll(secret, '***').replaceAll('\n', ' ')}`, async (t) => {
      const { code, stdout, stderr } = await run(t, words)
      assert.deepEqual([code, stdout], [64, ''], stderr)
      assert.doesNotMatch(stderr, /s3cr3t/)
    })
  }

  test('watch --json reports an unreachable store as JSON, too, and continues when the store is back', async (t) => {
    const server = await startRedis(t)
    const store = server.url()
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    const watching = leasehold(t, ['watch', '--json', '-i', '50ms', '-s', store, '--store-timeout', '200ms'])
    await locks.acquire('before')
    await watching.says(/"event":"held","key":"before"/)
    await server.kill()
    await watching.says(/"error".*\n.*"error".*\n/, 'stderr')
    await server.start()
    await locks.acquire('after', { wait: 20_000 })
    await watching.says(/"event":"held","key":"after"/)
    watching.signal('SIGINT')
    const { code, stderr } = await watching.ended
    assert.equal(code, 0)
    for (const line of stderr.trim().split('\n')) {
      const { at, error } = JSON.parse(line)
      assert.ok(Math.abs(Date.now() - Date.parse(at)) < 60_000, line)
      assert.equal(error.code, 'ERR_STORE_UNAVAILABLE', line)
      assert.match(error.message, /redis:\/\/127\.0\.0\.1:\d+ /)
    }
  })

  test('an error of a quorum has the errors of its servers, as text and as JSON', async (t) => {
    const servers = [1, 2, 3].flatMap((port) => ['-s', `redis://127.0.0.1:${port}`])
    const words = await run(t, ['inspect', 'k', ...servers])
    assert.equal(words.code, 69)
    assert.match(
      words.stderr,
      /^leasehold: no quorum: .*\(2 are needed\): redis:\/\/127\.0\.0\.1:\d .*refused.*; redis:\/\/127\.0\.0\.1:\d .*\n$/,
    )
    const json = await run(t, ['inspect', 'k', '--json', ...servers])
    const { error } = JSON.parse(json.stderr)
    assert.deepEqual([error.code, error.exit, error.votes.length], ['ERR_LOCK_QUORUM', 69, 3])
  })

  test('with --json an error is JSON, too', async (t) => {
    const { code, stderr } = await run(t, ['ls', '--json', '-s', 'redis://127.0.0.1:1'])
    assert.equal(code, 69)
    const { error } = JSON.parse(stderr)
    assert.deepEqual([error.code, error.exit], ['ERR_STORE_UNAVAILABLE', 69])
  })
})
