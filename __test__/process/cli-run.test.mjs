// `leasehold run` runs a real command while it holds a lock, and holds the lock no longer than the
// command needs.

import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { createLockClient } from 'leasehold'
import { CLI, isThere, leasehold, run, start } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

const sqlite = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`

function client(t, store) {
  const locks = createLockClient({ store, name: 'the test' })
  atEnd(t, () => locks.close())
  return locks
}

/**
 * A command that runs until it is killed. It prints the signals in `announced` when it gets them.
 */
const STUBBORN = (announced) =>
  `for s in ${announced.join(' ')}; do trap "echo got $s" $s; done; echo pid $$ ready; while :; do sleep 0.05; done`

test('leasehold run in a deleted working directory runs the command', { timeout: 60_000 }, async (t) => {
  const script = 'cd "$FOLDER" && rmdir "$FOLDER" && exec "$NODE" "$CLI" run k -- echo ran'
  const folder = join(temporaryFolder(t), 'deleted')
  mkdirSync(folder)
  const env = { LEASEHOLD_URL: sqlite(t), NODE: process.execPath, CLI, FOLDER: folder }
  const { code, stdout, stderr } = await start(t, '/bin/sh', ['-c', script], env).ended
  assert.deepEqual([code, stdout, stderr], [0, 'ran\n', ''])
})

overStores(
  'leasehold run',
  (store) => {
    test('three shells at once never run two commands at a time', async (t) => {
      const folder = temporaryFolder(t)
      writeFileSync(join(folder, 'count'), '0')
      // A job that begins while another one runs finds the directory. It then reads a count that
      // the other job has not written yet.
      const job = `cd ${folder}; if mkdir inside; then n=$(cat count); sleep 0.05; echo $((n + 1)) > count; rmdir inside;
        else echo overlap >> faults; fi`
      writeFileSync(join(folder, 'job'), job)
      const loop = `for i in 1 2 3 4; do "$NODE" "$CLI" run nightly -- sh -c "$(cat ${folder}/job)" || exit; done`
      const env = { LEASEHOLD_URL: store.url, NODE: process.execPath, CLI }
      const shells = [0, 1, 2].map(() => start(t, '/bin/sh', ['-c', loop], env).ended)
      for (const { code, stderr } of await Promise.all(shells)) assert.deepEqual([code, stderr], [0, ''])
      assert.equal(readFileSync(join(folder, 'count'), 'utf8').trim(), '12')
      assert.equal(await client(t, store.url).inspect('nightly'), null)
    })

    test('a forced release of the lock stops the command and all processes that it has started', async (t) => {
      const [locks, key] = [client(t, store.url), store.key()]
      const command = "trap 'echo asked to stop; exit 0' TERM; sleep 100 & echo started $!; wait"
      const words = ['run', key, '--store', store.url, '--ttl', '900ms', '--json', '--', 'sh', '-c', command]
      const running = leasehold(t, words)
      const [, grandchild] = await running.says(/started (\d+)\n/)
      assert.equal(await locks.forceRelease(key), true)
      const { code, stdout, stderr } = await running.ended
      assert.equal(code, 70, stderr)
      assert.match(stdout, /asked to stop\n$/)
      await until('the child of the command to end', () => !isThere(Number(grandchild)))
      const events = stderr
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
      assert.deepEqual(
        events.map(({ event, error }) => event ?? error.exit),
        ['waiting', 'acquired', 'started', 'lost', 'ended', 70],
      )
      assert.equal(events[3].reason, 'missing')
      assert.ok(await locks.tryAcquire(key), 'the lock is free')
    })

    test('if leasehold itself is killed (SIGKILL), the command does not run on without the lock', async (t) => {
      const [locks, key] = [client(t, store.url), store.key()]
      const words = ['run', key, '-s', store.url, '--ttl', '1s', '--json', '--', 'sh', '-c', STUBBORN(['USR1'])]
      const running = leasehold(t, words)
      const [, pid] = await running.says(/"started".*"pid":(\d+)/, 'stderr')
      await running.says(/ready\n/)
      running.signal('SIGKILL')
      const start = now()
      const lease = await locks.acquire(key)
      await until('the command to be gone', () => !isThere(Number(pid)))
      assert.ok(now() - start < 4_000)
      await lease.release()
    })
  },
  processStoreNames,
)

describe('leasehold run', { timeout: 120_000 }, () => {
  test('the command gets the key, the fence and the id of its run; leasehold has its output and exit code', async (t) => {
    const store = sqlite(t)
    const env = { LEASEHOLD_URL: store }
    const first = await run(t, ['run', 'a key', '--', 'sh', '-c', 'env | grep ^LEASEHOLD; exit 7'], env)
    // Every command inherits the variables of the tests.
    const isOurs = (line) => !line.startsWith('LEASEHOLD_TEST_')
    const lines = first.stdout.trim().split('\n').filter(isOurs).sort()
    const names = lines.map((line) => line.split('=', 1)[0])
    assert.deepEqual([first.code, first.stderr], [7, ''])
    assert.deepEqual(names, ['LEASEHOLD_FENCE', 'LEASEHOLD_KEY', 'LEASEHOLD_RUN', 'LEASEHOLD_URL'])
    assert.equal(lines[1], 'LEASEHOLD_KEY=a key')
    const fence = Number(/^LEASEHOLD_FENCE=(\d+)$/.exec(lines[0])[1])
    const second = await run(t, ['run', 'a key', '--', 'sh', '-c', 'echo $LEASEHOLD_FENCE; echo oh >&2'], env)
    assert.ok(Number(second.stdout) > fence)
    assert.deepEqual([second.code, second.stderr], [0, 'oh\n'])
  })

  test('leasehold ends by the signal that ended the command, or with the exit code that a shell has for it', async (t) => {
    const env = { LEASEHOLD_URL: sqlite(t) }
    for (const name of ['TERM', 'INT', 'HUP']) {
      const { signal } = await run(t, ['run', 'k', '--', 'sh', '-c', `kill -${name} $$`], env)
      assert.equal(signal, `SIG${name}`)
    }
    const { code } = await run(t, ['run', 'k', '--', 'sh', '-c', 'kill -USR2 $$'], env)
    assert.equal(code, 128 + constants.signals.SIGUSR2)
  })

  test('the command gets the environment of leasehold, and no other variables', async (t) => {
    const store = sqlite(t)
    const given = [`PATH=${process.env.PATH}`, 'HOME=/']
    for (const more of [
      [],
      ['PWD=/', 'OLDPWD=/'],
      ['a.name=that a shell drops'],
      ['OPTIND=no number', 'IFS=,', 'PS4=>'],
    ]) {
      const env = [...given, ...more]
      const words = ['-i', ...env, process.execPath, CLI, 'run', 'k', '-s', store, '--', 'env']
      const { code, stdout, stderr } = await start(t, 'env', words, {}).ended
      assert.deepEqual([code, stderr], [0, ''])
      // A shell sets _ to the program that it runs, and some shells count their levels.
      const found = stdout
        .trim()
        .split('\n')
        .filter((line) => !/^(_|SHLVL|LEASEHOLD_KEY|LEASEHOLD_FENCE|LEASEHOLD_RUN|PWD)=/.test(line))
      assert.deepEqual(found.sort(), env.filter((line) => !line.startsWith('PWD=')).sort())
      assert.equal(stdout.includes('\nPWD='), more.length === 2, stdout)
    }
    const pipe = await run(t, ['run', 'k', '-s', store, '--', 'sh', '-c', '(: <&3) 2>&1 && echo open'])
    assert.doesNotMatch(pipe.stdout, /^open/m)
  })

  test('signals are passed on to the command, and the lock is released when the command ends', async (t) => {
    const store = sqlite(t)
    const names = ['INT', 'HUP', 'QUIT', 'USR1', 'USR2']
    const command = `trap 'exit 9' TERM; ${STUBBORN(names)}`
    const running = leasehold(t, ['run', 'k', '--store', store, '--', 'sh', '-c', command])
    await running.says(/ready\n/)
    for (const name of names) {
      running.signal(`SIG${name}`)
      await running.says(new RegExp(`got ${name}\n`))
    }
    assert.equal(running.stdout.match(/got/g).length, names.length, 'each once')
    running.signal('SIGTERM')
    assert.equal((await running.ended).code, 9)
    assert.equal(await client(t, store).inspect('k'), null)
  })

  test('if the lock is held, --try and --wait give up with exit code 75, and the command is not run', async (t) => {
    const store = sqlite(t)
    const lease = await client(t, store).acquire('k')
    for (const words of [['--try'], ['--wait', '100ms']]) {
      const { code, stdout, stderr } = await run(t, ['run', 'k', '-s', store, ...words, '--', 'echo', 'run'])
      assert.deepEqual([code, stdout], [75, ''], stderr)
      assert.match(stderr, /^leasehold: .*"k".*\n$/)
      if (words[0] === '--wait') assert.match(stderr, /could not acquire "k" within 100 ms: held by ".+" for /)
      const quiet = await run(t, ['run', 'k', '-s', store, '-q', ...words, '--', 'echo', 'run'])
      assert.deepEqual([quiet.code, quiet.stdout, quiet.stderr], [75, '', ''])
    }
    await lease.release()
    const command = ['run', 'k', '-s', store, '--quiet', '--', 'sh', '-c', 'echo out; echo err >&2; exit 75']
    const { code, stdout, stderr } = await run(t, command)
    assert.deepEqual([code, stdout, stderr], [75, 'out\n', 'err\n'], 'the output of the command is not suppressed')
    const gone = await run(t, ['run', 'k', '-s', 'redis://127.0.0.1:1', '-q', '--try', '--', 'echo', 'run'])
    assert.equal(gone.code, 69)
    assert.match(gone.stderr, /^leasehold: .*127\.0\.0\.1/)
    assert.equal((await run(t, ['run', 'k', '-s', store, '-q', '-v', '--', 'echo', 'run'])).code, 64)
  })

  for (const [name, exit] of [
    ['SIGTERM', { code: null, signal: 'SIGTERM' }],
    ['SIGQUIT', { code: 131, signal: null }],
  ]) {
    test(`${name} ends leasehold while it waits, and leasehold leaves the queue`, async (t) => {
      const store = sqlite(t)
      const locks = client(t, store)
      const lease = await locks.acquire('k')
      const waiting = leasehold(t, ['run', 'k', '-s', store, '--', 'echo', 'run'])
      await until('leasehold to wait', async () => (await locks.inspect('k')).waiters.length === 1)
      // There is no command yet that could get these signals.
      for (const other of ['SIGUSR1', 'SIGUSR2']) waiting.signal(other)
      waiting.signal(name)
      const { code, signal, stdout } = await waiting.ended
      assert.deepEqual([{ code, signal }, stdout], [exit, ''])
      assert.deepEqual((await locks.inspect('k')).waiters, [])
      await lease.release()
    })
  }

  test('if Redis is frozen (SIGSTOP), the command is stopped when the lease is over, and killed if it does not end', async (t) => {
    const redis = await startRedis(t)
    const words = ['run', 'k', '-s', redis.url(), '--ttl', '1s', '--grace', '300ms', '--', 'sh', '-c']
    const running = leasehold(t, [...words, STUBBORN(['TERM'])])
    const [, pid] = await running.says(/pid (\d+) ready\n/)
    redis.freeze()
    const start = now()
    const { code, stdout, stderr } = await running.ended
    assert.equal(code, 70, stderr)
    assert.match(stdout, /got TERM\n$/)
    assert.match(stderr, /lost/)
    assert.ok(!isThere(Number(pid)) && now() - start < 3_500, `${now() - start} ms`)
    redis.thaw()
  })

  test('if the store is gone when the command ends, leasehold reports that the lock is not released', async (t) => {
    for (const json of [false, true]) {
      const server = await startRedis(t)
      const words = ['run', 'k', '-s', server.url(), ...(json ? ['--json'] : [])]
      const ended = await run(t, [...words, '--', 'sh', '-c', `kill -9 ${server.pid}; echo done`])
      assert.deepEqual([ended.code, ended.stdout], [0, 'done\n'], ended.stderr)
      const announced = ended.stderr.trim().split('\n')
      if (json) {
        const events = announced.map((line) => JSON.parse(line))
        assert.deepEqual(
          events.map(({ event, key }) => [event, key]),
          ['waiting', 'acquired', 'started', 'ended', 'unreleased'].map((event) => [event, 'k']),
        )
        assert.equal(events[4].error.code, 'ERR_STORE_UNAVAILABLE')
      } else {
        assert.equal(announced.length, 1)
        assert.match(announced[0], /^leasehold: the lock could not be released, and ends with its ttl: .*redis:/)
      }
    }
  })

  test('--max-hold ends the command as a loss does', async (t) => {
    const words = ['run', 'k', '-s', sqlite(t), '--ttl', '200ms', '--max-hold', '500ms', '--grace', '0', '--']
    const { code } = await run(t, [...words, 'sleep', '60'])
    assert.equal(code, 70)
  })

  test('a --max-hold that ends before the command starts says so', async (t) => {
    // The guard alone takes longer to start than this, on nearly every machine.
    const words = ['run', 'k', '-s', sqlite(t), '--ttl', '30ms', '--max-hold', '30ms', '--grace', '0', '--json', '--']
    const { code, stderr } = await run(t, [...words, 'sleep', '60'])
    assert.equal(code, 70)
    const started = stderr.includes('"started"')
    const expected = started
      ? /stopped the command: it held|lost/
      : /before the command could start: give it more time|lost/
    assert.match(stderr, expected)
  })

  test('the exit code is 127 for a missing command and 126 for one that can’t be run; the lock is released', async (t) => {
    const [store, folder] = [sqlite(t), temporaryFolder(t)]
    mkdirSync(join(folder, 'directory'))
    const missing = await run(t, ['run', 'k', '-s', store, '--', join(folder, 'missing')])
    assert.deepEqual([missing.code, missing.stdout], [127, ''])
    assert.match(missing.stderr, /^leasehold: no command .*missing" was found\n$/)
    assert.equal((await run(t, ['run', 'k', '-s', store, '--', join(folder, 'directory')])).code, 126)
    assert.equal(await client(t, store).inspect('k'), null)
  })

  test('the exit code is 69 for an unreachable store, and its password stays a secret', async (t) => {
    const store = 'redis://:hunter2@127.0.0.1:1'
    const { code, stderr } = await run(t, ['run', 'k', '-s', store, '--try', '--', 'echo', 'run'])
    assert.equal(code, 69, stderr)
    assert.doesNotMatch(stderr, /hunter2/)
  })

  test('a store in the place of the key is refused, and its password stays a secret', async (t) => {
    const store = 'redis://app:hunter2@host'
    for (const words of [
      ['inspect', store],
      ['release', store, '--force'],
      ['run', store, '--', 'true'],
      ['inspect', ` ${store}`],
      ['inspect', ` ${store}`, '--json'],
      ['release', `\n${store}`],
      ['release', `LEASEHOLD_URL=${store}`],
      ['inspect', 'redis://:a/hunter2@host'],
      ['run', `x ${store}`, '--', 'true'],
    ]) {
      const { code, stdout, stderr } = await run(t, words)
      assert.equal(code, 64, stderr)
      assert.match(stderr, /the key must be the name of a lock.*to name a store, write --store URL/)
      assert.doesNotMatch(stdout + stderr, /hunter2/)
    }
  })

  test('a server in the place of a lock is refused, unless an option names the store', async (t) => {
    const server = 'redis://127.0.0.1:1'
    const words = [['ls'], ['watch', '--looks', '1'], ['inspect'], ['release', '--force'], ['run', '--', 'true']]
    for (const [command, ...rest] of words) {
      const { code, stdout, stderr } = await run(t, [command, server, ...rest])
      assert.deepEqual([code, stdout], [64, ''], stderr)
      assert.match(stderr, /the URL of a server is no lock: to name a store, write --store URL/)
    }
    const { code } = await run(t, ['inspect', server, '--store', `sqlite:${join(temporaryFolder(t), 'locks.db')}`])
    assert.equal(code, 1)
  })

  test('a key with an @ in the path of a URL, or before the id of once(), is not refused as a store', async (t) => {
    for (const key of ['https://example.com/@user', 'user@example.com', 'feed:https://example.com@once:1/a']) {
      const { code, stdout } = await run(t, ['inspect', key, '-s', sqlite(t)])
      assert.deepEqual([code, stdout], [1, `"${key}" is ${key.includes('@once:') ? 'not remembered' : 'free'}\n`])
    }
  })

  test('the error of a command that is not found hides what may be a password', async (t) => {
    for (const [word, shown] of [
      ['PGPASSWORD=hunter2', /no command "PGPASSWORD=…" was found; set variables before leasehold/],
      [' PGPASSWORD=hunter2', /no command "PGPASSWORD=…" was found; set variables before leasehold/],
      ['env PGPASSWORD=hunter2 ./job', /no command "env…" was found\n/],
      ['mysqldump -phunter2 db', /no command "mysqldump…" was found\n/],
      ['./job\t--token=hunter2', /no command ".\/job…" was found\n/],
      ['--password=hunter2', /no command "--password=…" was found\n/],
      ['redis://:hunter2@host', /no command "redis:\/\/…@host" was found/],
      ['redis://:correct hunter2@host', /no command "redis:\/\/…@host" was found/],
    ]) {
      const { code, stderr } = await run(t, ['run', 'k', '-s', sqlite(t), '--', word, 'true'])
      assert.equal(code, 127, stderr)
      assert.match(stderr, shown)
      assert.doesNotMatch(stderr, /hunter2/)
    }
  })
})
