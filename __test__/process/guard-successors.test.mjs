// Kills `leasehold run` (SIGKILL) together with its successor, or on a slow machine, or after its
// renewals have failed. No other command may begin before the processes of the command have ended.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { killIfThere, leasehold, start } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const { startsBefore } = createRequire(import.meta.url)('../../dist/cli/guard.js')
const SLOW_START = fileURLToPath(new URL('fixtures/slow-start.cjs', import.meta.url))
const SLOW_LOOK = fileURLToPath(new URL('fixtures/slow-look.cjs', import.meta.url))
/** A shell that runs a command in another session, where only a successor finds the command. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']

const storeOf = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`
const guardOf = (pid) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))
const successorOf = (guard) =>
  processes().find(({ args }) => args.startsWith(process.execPath) && args.endsWith(`successor.js ${guard.pid}`))

/** Stops a successor, and kills it when the test is over. */
function stop(t, pid) {
  process.kill(pid, 'SIGSTOP')
  atEnd(t, () => killIfThere(pid))
}

const skip = process.platform === 'linux' ? false : 'needs /proc'
// The tests mostly wait for ttls and for commands that clean up.
describe('leasehold run, killed', { skip, timeout: 240_000, concurrency: 2 }, () => {
  test('if the successor that holds the lock is killed, too, the next one ends a process in another session at once', async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const guard = guardOf(contended.first.pid)
    contended.first.signal('SIGKILL')
    const { locks, holder } = contended
    await until('the lock to be taken over', async () => (await locks.inspect('k'))?.holder !== holder)
    process.kill(successorOf(guard).pid, 'SIGKILL')
    await assertInTurn(t, { ...contended, soon: contended.soon + 5_000 })
  })

  test('if the successor that started before the command is killed, too, the guard starts another one', async (t) => {
    const words = ['--ttl', '4s', '--grace', '2s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const successor = successorOf(guardOf(contended.first.pid))
    contended.first.signal('SIGKILL')
    process.kill(successor.pid, 'SIGKILL')
    assert.equal((await assertInTurn(t, contended)).ended, false)
  })

  test('with its stopped successor, which started before the command: the guard continues it', async (t) => {
    const words = ['--ttl', '4s', '--grace', '1s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const { pid } = successorOf(guardOf(contended.first.pid))
    stop(t, pid)
    contended.first.signal('SIGKILL')
    assert.equal((await assertInTurn(t, contended)).ended, false)
  })

  test('and its successor, which held the lock, is stopped: the guard continues it', async (t) => {
    const words = ['--ttl', '6s', '--grace', '30s']
    const contended = await contend(t, storeOf(t), 'k', { clean: 7_000, wrap: SETSID, words })
    const guard = guardOf(contended.first.pid)
    contended.first.signal('SIGKILL')
    const { locks, holder } = contended
    await until('the lock to be taken over', async () => (await locks.inspect('k'))?.holder !== holder)
    const { pid } = successorOf(guard)
    stop(t, pid)
    await assertCleanedUp(contended, await assertInTurn(t, contended), 7_000)
  })

  test('while its guard is stopped, the guard continues in time to end the command before the lock ends', async (t) => {
    const words = ['--ttl', '6s', '--grace', '1s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
    const { pid } = guardOf(contended.first.pid)
    stop(t, pid)
    // Its successor would end the command, too.
    killIfThere(successorOf({ pid }).pid)
    contended.first.signal('SIGKILL')
    await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
  })

  for (const ttl of [3, 9])
    test(`after the end of its guard, another guard ends the command: ttl ${ttl} s`, async (t) => {
      const words = ['--ttl', `${ttl}s`, '--grace', '1s']
      const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, words })
      const { pid } = guardOf(contended.first.pid)
      process.kill(pid, 'SIGKILL')
      const next = await until('another guard', () => {
        const guard = guardOf(contended.first.pid)
        return guard?.pid === pid ? undefined : guard
      })
      // Its timer starts after it has read what to do.
      await until('its timer', () => guardOf(next.pid))
      contended.first.signal('SIGKILL')
      await assertInTurn(t, contended)
      await until('the guard to end', () => !processes().some((each) => each.pid === next.pid))
    })

  test('the guard learns of the takeover although the search for processes takes longer than the ttl', {
    skip: process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false,
  }, async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const env = { NODE_OPTIONS: `--require ${SLOW_LOOK}`, LOOK: '6000' }
    const contended = await contend(t, storeOf(t), 'k', { clean: 8_000, words, env })
    contended.first.signal('SIGKILL')
    // If the successor started before the command, the guard starts another one at the end.
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 2 * 8_000 })
    await assertCleanedUp(contended, turn, 8_000)
  })

  /** Contends for a lock with a `ttl` in ms, which is renewed through a relay. */
  async function contendThroughRelay(t, ttl, options) {
    const server = await startRedis(t)
    const relay = await startRelay(t, server.port)
    const words = ['--ttl', `${ttl}ms`, '--grace', '30s']
    const env = { LEASEHOLD_URL: `redis://127.0.0.1:${relay.port}` }
    const contended = await contend(t, server.url(), 'k', { ...options, words, env })
    const remaining = async () => (await contended.locks.inspect('k')).remaining
    return { relay, contended, remaining }
  }

  for (const [what, wrap, ttl] of [
    ['the guard kills the command', [], 6_000],
    ['the successor kills a process in another session', SETSID, 6_000],
    ['a successor that started before the command kills a process in another session', SETSID, 4_000],
  ]) {
    test(`after failed renewals, ${what} before the lock is free`, async (t) => {
      const { relay, contended, remaining } = await contendThroughRelay(t, ttl, { clean: FOR_EVER, wrap })
      // Two thirds of the ttl are left at the next renewal.
      await until('the next renewal to be near', async () => (await remaining()) < 0.72 * ttl)
      relay.bar()
      await until('the lock to end soon', async () => (await remaining()) < 0.25 * ttl)
      contended.first.signal('SIGKILL')
      await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
    })
  }

  test('after one failed renewal, a process in another session has time to clean up', async (t) => {
    // The process has about 1 s. On a machine with a high load, it has less.
    const clean = 100
    const { relay, contended, remaining } = await contendThroughRelay(t, 4_000, { clean, wrap: SETSID })
    // The lock was safe until 2.7 s after the acquire. A successor that knew of no renewal would
    // kill the process at once.
    for (let renewal = 0; renewal < 3; renewal++) {
      await until('the lock to be renewed', async () => (await remaining()) > 3_500)
      await until('the next renewal to be near', async () => (await remaining()) < 2_900)
    }
    relay.bar()
    contended.first.signal('SIGKILL')
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
    await assertCleanedUp(contended, turn, clean)
  })
})

describe('the guard of leasehold run', { skip, timeout: 60_000 }, () => {
  test('its successor starts before the command if the ttl is short, or leasehold took long to start', () => {
    for (const [ttl, startup, before] of [
      [7_999, 0, true],
      [8_000, 100, false],
      [8_000, 1_300, false],
      [8_000, 1_350, true],
      [10_000, 850, false],
      [10_000, 1_700, true],
      [3_600_000, 60_000, false],
    ]) {
      assert.equal(startsBefore(ttl, startup), before, `ttl ${ttl} ms, startup ${startup} ms`)
    }
  })

  test('if leasehold took long to start, its successor is ready when the command runs', {
    skip: process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false,
  }, async (t) => {
    const env = { NODE_OPTIONS: `--require ${SLOW_START}` }
    const words = ['run', 'k', '-s', storeOf(t), '--ttl', '8s', '--', 'sh', '-c', 'echo runs; exec sleep 60']
    const running = leasehold(t, words, env)
    await running.says(/runs/)
    assert.ok(successorOf(guardOf(running.pid)), 'no successor runs')
    running.signal('SIGTERM')
    assert.equal((await running.ended).signal, 'SIGTERM')
  })

  /** Reports many renewals to a stopped guard, and then the end of the command. */
  const REPORTS = `
    const { Guard } = require(process.argv[1])
    const ticket = { key: 'k', token: 't', fence: 1, ttl: 10_000, most: 1 }
    const guard = new Guard({ options: {}, ticket, grace: 0 }, { ttl: 10_000, remaining: 10_000 })
    const pid = Number(process.argv[2])
    guard.watch({ pid, start: undefined, leads: true, run: 'none' }).then(() => {
      console.log('watched')
      process.once('SIGUSR2', () => {
        for (let i = 0; i < 10_000; i++) guard.renewed()
        guard.dismiss()
        clearTimeout(alive)
      })
    })
    const alive = setTimeout(() => {}, 60_000)`

  test('if the guard is stopped, leasehold ends without it, and the guard does not end the command', async (t) => {
    const command = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    atEnd(t, () => command.kill('SIGKILL'))
    const file = fileURLToPath(new URL('../../dist/cli/guard.js', import.meta.url))
    const reporter = start(t, process.execPath, ['-e', REPORTS, file, String(command.pid)])
    await reporter.says(/watched/)
    const guard = guardOf(reporter.pid)
    process.kill(guard.pid, 'SIGSTOP')
    atEnd(t, () => killIfThere(guard.pid))
    reporter.signal('SIGUSR2')
    assert.deepEqual(await reporter.exited, { code: 0, signal: null })
    await until('the guard to end', () => !processes().some(({ pid }) => pid === guard.pid))
    assert.equal(command.signalCode, null)
    process.kill(command.pid, 0)
  })

  test('a stopped successor ends with the command', async (t) => {
    const contended = await contend(t, storeOf(t), 'k', { words: ['--ttl', '4s'] })
    const { pid } = successorOf(guardOf(contended.first.pid))
    stop(t, pid)
    contended.first.signal('SIGTERM')
    await assertInTurn(t, contended)
    await until('the successor to end', () => !processes().some((each) => each.pid === pid))
  })
})
