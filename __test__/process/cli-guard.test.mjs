// If `leasehold run` is killed (SIGKILL) while its command runs, the lock stays held until the
// command has ended. Without a guard, the command is not run, or is stopped.

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { CLI, leasehold, start } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

const HURT_GUARD = fileURLToPath(new URL('fixtures/hurt-guard.cjs', import.meta.url))
/** With this variable, {@link HURT_GUARD} kills the guard before it can answer. */
const DEAD_GUARD = ['SIGNAL=SIGKILL']
const SLOW_GUARD = fileURLToPath(new URL('fixtures/slow-guard.cjs', import.meta.url))
const NO_FILES = fileURLToPath(new URL('fixtures/no-files.cjs', import.meta.url))

const guardOf = ({ pid }) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))

/** Returns the environment of a process, or nothing if it has ended. */
function environmentOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes(error.code)) return []
    throw error
  }
}

/** Resolves once another process holds the lock. The second command still waits for it. */
const takenOver = ({ locks, key, holder }) =>
  until('the lock to be taken over', async () => (await locks.inspect(key))?.holder !== holder)

/**
 * Asserts that the second command begins once the ttl is over. The ttl began at `start` at the
 * latest.
 */
async function assertFreeAfter(ttl, start, { second, journal, soon }) {
  assert.equal((await second.ended).code, 0)
  const waited = journal.span('second').begin - start
  // At least two thirds of the ttl are left when its renewal stops.
  assert.ok(waited > ttl / 2 && waited < ttl + soon, `${waited} ms`)
}

/** How long the command of some tests cleans up, in ms. */
const CLEAN = 8_000

overStores(
  'leasehold run, killed',
  (store) => {
    for (const [what, words] of [
      ['a ttl longer than that', ['--grace', '15s']],
      // With much less, a busy machine may leave no time to clean up.
      ['a ttl shorter than that', ['--ttl', '7s', '--grace', '15s']],
      ['a ttl shorter than that and --grace', ['--ttl', '7s', '--grace', '20s']],
    ]) {
      test(`while the command cleans up, with ${what}, no other command gets the lock`, async (t) => {
        const contended = await contend(t, store.url, store.key(), { clean: CLEAN, words })
        contended.first.signal('SIGKILL')
        await assertCleanedUp(contended, await assertInTurn(t, contended), CLEAN)
      })
    }

    test('if the command ends on SIGTERM, the next command begins soon, not after a ttl', async (t) => {
      const contended = await contend(t, store.url, store.key(), { words: ['--ttl', '20s'] })
      contended.first.signal('SIGKILL')
      await assertInTurn(t, contended)
    })

    test('the guard kills a command that does not end after --grace, and the lock stays held until then', async (t) => {
      const words = ['--ttl', '1s', '--grace', '2s']
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
      contended.first.signal('SIGKILL')
      assert.equal((await assertInTurn(t, contended)).ended, false)
    })

    test('a stray SIGUSR1 does not end the command', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: 500 })
      const guard = guardOf(contended.first)
      for (let i = 0; i < 3; i++) process.kill(guard.pid, 'SIGUSR1')
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 500)
    })

    test('processes of the group that outlive the command keep the lock, too', async (t) => {
      const wrap = ['sh', '-c', '"$0" "$@" & wait']
      const contended = await contend(t, store.url, store.key(), { clean: 1_500, wrap })
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 1_500)
    })

    test('a variable that a shell refuses does not end the guard', async (t) => {
      const env = { OPTIND: 'no number' }
      const contended = await contend(t, store.url, store.key(), { clean: 500, env })
      contended.first.signal('SIGKILL')
      await assertCleanedUp(contended, await assertInTurn(t, contended), 500)
    })

    test('killed with its guard, leasehold leaves a lock that is free after a ttl', async (t) => {
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words: ['--ttl', '5s'] })
      const guard = guardOf(contended.first)
      // Otherwise, leasehold would start another guard.
      contended.first.signal('SIGSTOP')
      process.kill(guard.pid, 'SIGKILL')
      contended.first.signal('SIGKILL')
      await assertFreeAfter(5_000, now(), contended)
    })
  },
  processStoreNames,
  // The tests mostly wait for grace periods and ttls.
  { concurrency: 2 },
)

describe('leasehold run, killed', { timeout: 60_000 }, () => {
  const skip = process.platform === 'linux' ? false : 'needs /proc'
  test('the guard has no secret in its arguments or environment', { skip }, async (t) => {
    const server = await startRedis(t, { password: 'hunter2' })
    const contended = await contend(t, server.url(), 'k', { clean: 2_000 })
    const { pid, args } = guardOf(contended.first)
    contended.first.signal('SIGKILL')
    await takenOver(contended)
    assert.doesNotMatch(args, /hunter2|eyJ/)
    const rest = environmentOf(pid).filter((line) => !line.startsWith('LEASEHOLD_URL='))
    assert.ok(rest.length > 0)
    assert.doesNotMatch(rest.join('\n'), /hunter2|eyJ/)
    await assertInTurn(t, contended)
  })
})

describe('leasehold run without its guard', { timeout: 60_000 }, () => {
  const skip = process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false
  /** If the environment has this variable, leasehold starts the command without a gate. */
  const UNGATED = 'a.name=dropped by a shell'

  /**
   * Runs `command` by a leasehold that preloads `file`, and asserts that the lock is free
   * afterwards.
   */
  async function runWith(t, file, { env = [], command }) {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const given = [...env, `NODE_OPTIONS=--require ${file}`, process.execPath, CLI]
    const words = ['run', 'k', '-s', store, '--', ...command]
    // With a low limit, it does not take long to open as many files as allowed.
    const ended = await start(t, 'sh', ['-c', 'ulimit -n 200; exec env "$@"', 'sh', ...given, ...words]).ended
    const next = await start(t, process.execPath, [CLI, 'run', 'k', '-s', store, '--try', '--', 'true']).ended
    assert.equal(next.code, 0, next.stderr)
    return ended
  }

  for (const [what, env] of [
    ['behind a gate', []],
    ['without a gate', [UNGATED]],
  ]) {
    test(`if the guard can't be started, the command ${what} is not run`, { skip }, async (t) => {
      const file = join(temporaryFolder(t), 'ran')
      const options = { env: [...env, 'FAILING=leasehold-guard'], command: ['touch', file] }
      const { code, stderr } = await runWith(t, NO_FILES, options)
      assert.equal(existsSync(file), false, 'the command ran')
      assert.equal(code, 71, stderr)
      assert.match(stderr, /^leasehold: "touch" was not run: .*guard.*\n$/)
    })
  }

  test('if the guard ends before it watches, the command behind a gate is not run', { skip }, async (t) => {
    const file = join(temporaryFolder(t), 'ran')
    const { code, stderr } = await runWith(t, HURT_GUARD, { env: DEAD_GUARD, command: ['touch', file] })
    assert.equal(existsSync(file), false, 'the command ran')
    assert.equal(code, 71, stderr)
    assert.match(stderr, /^leasehold: "touch" was not run: .*guard.* run it again\n$/)
  })

  for (const [what, more, code] of [
    ['is ready', [], 0],
    ['has ended, and is then not run', ['DIES=1'], 71],
  ]) {
    test(`the command waits until the guard ${what}`, { skip }, async (t) => {
      const ran = join(temporaryFolder(t), 'ran')
      const options = { env: [`RAN=${ran}`, ...more], command: ['touch', ran] }
      const ended = await runWith(t, SLOW_GUARD, options)
      await until('the guard to start', () => existsSync(`${ran}-by-then`))
      assert.equal(readFileSync(`${ran}-by-then`, 'utf8'), 'false', 'the command ran before')
      assert.equal(existsSync(ran), code === 0)
      assert.equal(ended.code, code, ended.stderr)
    })
  }

  test('if the lock is lost before the guard watches, the command has not "started"', { skip }, async (t) => {
    const folder = temporaryFolder(t)
    const [store, ran] = [`sqlite:${join(folder, 'locks.db')}`, join(folder, 'ran')]
    const env = { NODE_OPTIONS: `--require ${SLOW_GUARD}`, RAN: ran, 'a.name': 'dropped by a shell' }
    const script = `trap '' TERM; echo runs; sleep 600 & while :; do wait; done`
    const words = ['run', 'k', '-s', store, '--ttl', '500ms', '--grace', '3s', '--json', '--', 'sh', '-c', script]
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    const running = leasehold(t, words, env)
    await running.says(/runs/)
    assert.equal(await locks.forceRelease('k'), true)
    const { code, stderr } = await running.ended
    assert.equal(code, 70, stderr)
    const events = [...stderr.matchAll(/"event":"(\w+)"/g)].map(([, event]) => event)
    assert.deepEqual(events, ['waiting', 'acquired', 'lost', 'ended'])
  })

  test('if leasehold is stopped until its lock is lost, the command behind a gate is not run', { skip }, async (t) => {
    const folder = temporaryFolder(t)
    const [store, ran] = [`sqlite:${join(folder, 'locks.db')}`, join(folder, 'ran')]
    const env = { NODE_OPTIONS: `--require ${SLOW_GUARD}`, RAN: ran }
    const stopped = leasehold(t, ['run', 'k', '-s', store, '--ttl', '2s', '--', 'touch', ran], env)
    const isGate = ({ parent, args }) => parent === stopped.pid && args.includes('LEASEHOLD_GATE')
    await until('the gate to wait for the guard', () => processes().some(isGate))
    stopped.signal('SIGSTOP')
    const locks = createLockClient(store)
    atEnd(t, () => locks.close())
    const lease = await locks.acquire('k')
    stopped.signal('SIGCONT')
    const { code, stderr } = await stopped.ended
    assert.equal(existsSync(ran), false, 'the command ran')
    assert.equal(code, 70, stderr)
    await lease.release()
  })

  test('if the guard ends before it watches, the command without a gate is stopped', { skip }, async (t) => {
    const { code, stderr } = await runWith(t, HURT_GUARD, { env: [UNGATED, ...DEAD_GUARD], command: ['sleep', '600'] })
    assert.equal(code, 71, stderr)
    assert.match(stderr, /^leasehold: "sleep" was stopped: .*guard.* run it again\n$/)
  })
})
