// The table "Why leasehold" of the README: the behavior of redlock and redis-semaphore with their
// defaults. The experiment runs as the README shows it. The figures come from `npm run bench`.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { createLockClient, LockTimeoutError, StoreUnavailableError } from 'leasehold'
import { haveLibraries } from '../../bench/libraries.mjs'
import { sleep } from '../support/clock.mjs'
import { javaScriptOf } from '../support/docs/compiler.mjs'
import { pages, ROOT } from '../support/docs/page.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

haveLibraries()
const require = createRequire(join(ROOT, 'bench', 'package.json'))
const Redis = require('ioredis')
const { default: Redlock, ExecutionError } = require('redlock')
const { Mutex, TimeoutError } = require('redis-semaphore')
const PEERS = ['redlock', 'redis-semaphore']
const TTL = 1_000

const readme = pages().find(({ name }) => name === 'README.md')

/** Connects with ioredis. The calls reject with its errors. */
function connect(t, url, options) {
  const redis = new Redis(url, options)
  redis.on('error', () => {})
  atEnd(t, () => redis.disconnect())
  return redis
}

function open(t, url) {
  const locks = createLockClient(url)
  atEnd(t, () => locks.close())
  return locks
}

/** Returns a folder with a `node_modules` that has leasehold and the libraries of bench/. */
function projectOf(t) {
  const folder = temporaryFolder(t)
  mkdirSync(join(folder, 'node_modules'))
  symlinkSync(ROOT, join(folder, 'node_modules', 'leasehold'), 'junction')
  for (const name of [...PEERS, 'ioredis']) {
    symlinkSync(join(ROOT, 'bench', 'node_modules', name), join(folder, 'node_modules', name), 'junction')
  }
  return folder
}

/** Runs a module in `cwd`. Resolves with its exit code and output. */
async function run(cwd, source, env) {
  const options = { cwd, env: { ...process.env, NODE_TEST_CONTEXT: undefined, ...env }, timeout: 30_000 }
  const child = promisify(execFile)(process.execPath, ['--input-type=module', '-e', source], options)
  return child.then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  )
}

describe('README: why leasehold', { concurrency: 4, timeout: 60_000 }, () => {
  test('event loop blocked for longer than the ttl: the experiment prints the values of its comments', async (t) => {
    const [block, ...others] = readme.blocks.filter(({ text }) => text.includes('Atomics.wait('))
    assert.equal(others.length, 0)
    const comments = [...block.text.matchAll(/\/\/ (\[.*\]|\w+Error)$/gm)]
    const server = await startRedis(t)
    const { code, stdout, stderr } = await run(
      projectOf(t),
      `${javaScriptOf(block)}\nawait locks.close()\nredis.disconnect()`,
      { REDIS_URL: server.url() },
    )
    assert.deepEqual([code, stderr], [0, ''])
    const expected = ['[ true, true, true ]', '[ false, false, true ]', 'ExecutionError']
    assert.deepEqual(stdout.trim().split('\n'), expected)
    assert.deepEqual(
      comments.map(([, values]) => values),
      expected,
    )
  })

  test('Redis frozen for 3 s: leasehold reports the loss within the ttl, the others do not in 3 s', async (t) => {
    const server = await startRedis(t)
    const redis = connect(t, server.url())
    const mutex = new Mutex(redis, 'job', { lockTimeout: TTL, onLockLost: () => {} })
    await mutex.acquire()
    const lease = await open(t, server.url()).acquire('job', { ttl: TTL })
    const seen = {}
    const job = new Redlock([redis]).using(['job'], TTL, async (signal) => {
      server.freeze()
      await sleep(TTL)
      const { isHeld } = lease
      // On a busy machine, the event may be late. isHeld is read from the clock, and is not.
      await sleep(TTL / 4)
      seen.lease = [isHeld, lease.signal.aborted]
      await sleep(1.75 * TTL)
      seen.others = [!signal.aborted, mutex.isAcquired]
      server.thaw()
    })
    // The lock has expired before redlock releases it.
    await assert.rejects(job, ExecutionError)
    assert.deepEqual(seen, { lease: [false, true], others: [true, true] })
  })

  const holders = {
    leasehold: `
      import { createLockClient } from 'leasehold'
      const locks = createLockClient(process.env.REDIS_URL)
      const { signal } = await locks.acquire('job', { ttl: ${TTL} })
      await held(signal)`,
    redlock: `
      import Redlock from 'redlock'
      await new Redlock([redis]).using(['job'], ${TTL}, held)`,
    'redis-semaphore': `
      import { Mutex } from 'redis-semaphore'
      await new Mutex(redis, 'job', { lockTimeout: ${TTL}, onLockLost: () => console.log('lost') }).acquire()
      await held(new AbortController().signal)`,
  }
  const ends = {
    leasehold: 'its signal aborts within the ttl',
    redlock: 'its signal aborts after its retries',
    'redis-semaphore': 'an unhandled rejection ends the process',
  }
  for (const [name, holder] of Object.entries(holders)) {
    test(`if a renewal of ${name} fails because Redis is down, ${ends[name]}`, async (t) => {
      const server = await startRedis(t)
      const source = `
                import { once } from 'node:events'
        import { Redis } from 'ioredis'
        const redis = new Redis(process.env.REDIS_URL, { maxRetriesPerRequest: 1, retryStrategy: () => 50 })
        redis.on('error', () => {})
        async function held(signal) {
          process.kill(${server.pid}, 'SIGKILL')
          const start = performance.now()
          setTimeout(() => process.exit(3), 10 * ${TTL})
          await once(signal, 'abort')
          console.log(performance.now() - start < ${1.5 * TTL} ? 'in time' : 'late')
          process.exit(0)
        }${holder}`
      const { code, stdout, stderr } = await run(projectOf(t), source, { REDIS_URL: server.url() })
      if (name === 'redis-semaphore') {
        assert.deepEqual([code, stdout], [1, ''])
        assert.match(stderr, /MaxRetriesPerRequestError/)
      } else {
        assert.deepEqual([code, stdout], [0, name === 'leasehold' ? 'in time\n' : 'late\n'], stderr)
      }
    })
  }

  test('only leasehold and redis-semaphore have different errors for a held lock and an unreachable Redis', async (t) => {
    const server = await startRedis(t)
    /** Returns the class of the error with which each library rejects. */
    const errors = async (url) => {
      const redis = connect(t, url, { maxRetriesPerRequest: 1, retryStrategy: () => 50 })
      const calls = [
        open(t, url).acquire('leasehold', { wait: 300 }),
        new Redlock([redis], { retryCount: 1 }).acquire(['redlock'], TTL),
        new Mutex(redis, 'semaphore', { acquireTimeout: 300 }).acquire(),
      ]
      return (await Promise.allSettled(calls)).map(({ reason }) => reason)
    }
    await open(t, server.url()).acquire('leasehold')
    for (const key of ['redlock', 'mutex:semaphore']) await server.ask('SET', key, 'another holder')
    const held = await errors(server.url())
    const unreachable = await errors(`redis://127.0.0.1:${await freePort()}`)
    assert.deepEqual(
      [...held, ...unreachable].map((error) => error.constructor.name),
      [
        ...[LockTimeoutError.name, ExecutionError.name, TimeoutError.name],
        ...[StoreUnavailableError.name, ExecutionError.name, 'MaxRetriesPerRequestError'],
      ],
    )
    // The error of redlock has the reason in its `attempts`.
    const [vote] = (await held[1].attempts[0]).votesAgainst.values()
    assert.equal(vote.name, 'ResourceLockedError')
  })

  test('no other library gives a fence', () => {
    for (const name of PEERS) {
      const folder = join(ROOT, 'bench', 'node_modules', name)
      const typings = readdirSync(folder, { recursive: true }).filter((path) => path.endsWith('.d.ts'))
      assert.ok(typings.length > 0, name)
      for (const path of typings) assert.doesNotMatch(readFileSync(join(folder, path), 'utf8'), /fenc/i, path)
    }
  })

  test('each row names a test or a table', () => {
    const [, table] = /\n## Why leasehold\n([\s\S]*?)\n## /.exec(readme.source)
    const rows = table.split('\n').filter((line) => /^\| [^-|]/.test(line))
    assert.equal(rows.length, 8)
    for (const row of rows) assert.match(row, /\]\((?:__test__\/\S+\.test\.mjs|docs\/benchmarks\.md#\S+)\)/)
  })
})
