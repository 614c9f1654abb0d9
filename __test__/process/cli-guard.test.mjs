// If `leasehold run` is killed (SIGKILL) while its command runs, the lock stays held until the
// command has ended. Without a guard, the command is not run, or is stopped.

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { CLI, isThere, leasehold, start } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'
import { overStores, processStoreNames } from '../support/stores.mjs'

const HURT_CHILD = fileURLToPath(new URL('fixtures/hurt-child.cjs', import.meta.url))
/** With these variables, {@link HURT_CHILD} kills the guard before it can answer. */
const DEAD_GUARD = ['HURT=leasehold-guard', 'SIGNAL=SIGKILL']
const SLOW_SUCCESSOR = fileURLToPath(new URL('fixtures/slow-successor.cjs', import.meta.url))
const NO_FILES = fileURLToPath(new URL('fixtures/no-files.cjs', import.meta.url))

const guardOf = ({ pid }) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))

/**
 * Returns the Node process that takes the lock over. Its last argument is the guard's process id.
 */
const successorOf = ({ pid }) =>
  processes().find(({ args }) => args.startsWith(process.execPath) && args.endsWith(`successor.js ${pid}`))

/** Returns the environment of a process, or nothing if it has ended, as a guard's timer does. */
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
      // A shorter ttl has a successor from the beginning.
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words: ['--ttl', '8s'] })
      const guard = guardOf(contended.first)
      // On a busy machine, this ttl has one, too.
      const successor = successorOf(guard)
      if (successor) process.kill(successor.pid, 'SIGKILL')
      process.kill(guard.pid, 'SIGKILL')
      contended.first.signal('SIGKILL')
      await assertFreeAfter(8_000, now(), contended)
    })

    // With less than 4 s, docs/cli.md does not promise it. With less than 8 s, the successor starts
    // before the command.
    for (const ttl of [4_500, 8_000]) {
      const words = ['--ttl', `${ttl}ms`, '--grace', '30s']

      test(`killed with its successor, ttl ${ttl} ms: the guard kills the command before the lock is free`, async (t) => {
        const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
        const guard = guardOf(contended.first)
        contended.first.signal('SIGKILL')
        await takenOver(contended)
        process.kill(successorOf(guard).pid, 'SIGKILL')
        const killed = now()
        const { end } = await assertInTurn(t, { ...contended, soon: contended.soon + ttl })
        assert.ok(end - killed < ttl, `${end - killed} ms`)
      })

      test(`killed with each successor, ttl ${ttl} ms: the guard kills the command before the lock is free`, async (t) => {
        const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
        const guard = guardOf(contended.first)
        let kills = 0
        const timer = setInterval(() => {
          const successor = successorOf(guard)
          if (successor === undefined) return
          try {
            process.kill(successor.pid, 'SIGKILL')
            kills++
          } catch {
            // The process has just ended.
          }
        }, 20)
        atEnd(t, () => clearInterval(timer))
        contended.first.signal('SIGKILL')
        await assertInTurn(t, { ...contended, soon: contended.soon + ttl })
        assert.ok(kills > 0)
      })
    }

    test('if the guard is killed, too, and the ttl is short, the successor kills the command', async (t) => {
      const words = ['--ttl', '1s', '--grace', '0']
      const contended = await contend(t, store.url, store.key(), { clean: FOR_EVER, words })
      process.kill(guardOf(contended.first).pid, 'SIGKILL')
      contended.first.signal('SIGKILL')
      assert.equal((await assertInTurn(t, contended)).ended, false)
      assert.ok(!isThere(contended.pid))
    })
  },
  processStoreNames,
  // The tests mostly wait for grace periods and ttls.
  { concurrency: 2 },
)

describe('leasehold run, killed', { timeout: 60_000 }, () => {
  const skip = process.platform === 'linux' ? false : 'needs /proc'
  for (const ttl of ['1s', '10s']) {
    test(`guard and successor have no secret in their arguments or environment: ttl ${ttl}`, {
      skip,
    }, async (t) => {
      const server = await startRedis(t, { password: 'hunter2' })
      const before = new Set(processes().map(({ pid }) => pid))
      // If the guard's script did not unset these variables, its shell would export the secrets.
      const env = { takeover: 'not ours', target: 'not ours' }
      const contended = await contend(t, server.url(), 'k', { clean: 2_000, words: ['--ttl', ttl], env })
      contended.first.signal('SIGKILL')
      await takenOver(contended)
      const ours = processes().filter(({ pid, args }) => !before.has(pid) && /leasehold-guard|successor/.test(args))
      for (const what of [/leasehold-guard/, /successor/]) assert.ok(ours.some(({ args }) => what.test(args)))
      for (const { pid, args } of ours) {
        assert.doesNotMatch(args, /hunter2|eyJ/)
        const given = environmentOf(pid)
        const rest = given.filter((line) => !line.startsWith('LEASEHOLD_URL='))
        assert.doesNotMatch(rest.join('\n'), /hunter2|eyJ/)
      }
      await assertInTurn(t, contended)
    })
  }
})

describe('leasehold run without its guard', { timeout: 60_000 }, () => {
  const skip = process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false
  /** If the environment has this variable, leasehold starts the command without a gate. */
  const UNGATED = 'a.name=dropped by a shell'

  /**
   * Runs `command` by a leasehold that preloads `file`, and asserts that the lock is free
   * afterwards.
   */
  async function runWith(t, file, { ttl = '10s', env = [], command }) {
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const given = [...env, `NODE_OPTIONS=--require ${file}`, process.execPath, CLI]
    const words = ['run', 'k', '-s', store, '--ttl', ttl, '--', ...command]
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
    for (const [missing, ttl] of [
      ['leasehold-guard', '10s'],
      ['successor.js', '1s'],
    ]) {
      test(`if ${missing} can't be started, the command ${what} is not run`, { skip }, async (t) => {
        const file = join(temporaryFolder(t), 'ran')
        const options = { ttl, env: [...env, `FAILING=${missing}`], command: ['touch', file] }
        const { code, stderr } = await runWith(t, NO_FILES, options)
        assert.equal(existsSync(file), false, 'the command ran')
        assert.equal(code, 71, stderr)
        assert.match(stderr, /^leasehold: "touch" was not run: .*guard.*\n$/)
      })
    }
  }

  test('if the guard ends before it watches, the command behind a gate is not run', { skip }, async (t) => {
    const file = join(temporaryFolder(t), 'ran')
    const { code, stderr } = await runWith(t, HURT_CHILD, { env: DEAD_GUARD, command: ['touch', file] })
    assert.equal(existsSync(file), false, 'the command ran')
    assert.equal(code, 71, stderr)
    assert.match(stderr, /^leasehold: "touch" was not run: .*guard.* run it again\n$/)
  })

  for (const [what, more, code] of [
    ['is ready', [], 0],
    ['has ended, and is then not run', ['DIES=1'], 71],
  ]) {
    test(`with a short ttl, the command waits until the successor ${what}`, { skip }, async (t) => {
      const ran = join(temporaryFolder(t), 'ran')
      const options = { ttl: '2s', env: [`RAN=${ran}`, ...more], command: ['touch', ran] }
      const ended = await runWith(t, SLOW_SUCCESSOR, options)
      await until('the successor to start', () => existsSync(`${ran}-by-then`))
      assert.equal(readFileSync(`${ran}-by-then`, 'utf8'), 'false', 'the command ran before')
      assert.equal(existsSync(ran), code === 0)
      assert.equal(ended.code, code, ended.stderr)
    })
  }

  test('if the lock is lost before the guard watches, the command has not "started"', { skip }, async (t) => {
    const folder = temporaryFolder(t)
    const [store, ran] = [`sqlite:${join(folder, 'locks.db')}`, join(folder, 'ran')]
    const env = { NODE_OPTIONS: `--require ${SLOW_SUCCESSOR}`, RAN: ran, 'a.name': 'dropped by a shell' }
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
    const env = { NODE_OPTIONS: `--require ${SLOW_SUCCESSOR}`, RAN: ran }
    const stopped = leasehold(t, ['run', 'k', '-s', store, '--ttl', '2s', '--', 'touch', ran], env)
    const isGate = ({ parent, args }) => parent === stopped.pid && args.includes('LEASEHOLD_GATE')
    await until('the gate to wait for the successor', () => processes().some(isGate))
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
    const { code, stderr } = await runWith(t, HURT_CHILD, { env: [UNGATED, ...DEAD_GUARD], command: ['sleep', '600'] })
    assert.equal(code, 71, stderr)
    assert.match(stderr, /^leasehold: "sleep" was stopped: .*guard.* run it again\n$/)
  })
})
