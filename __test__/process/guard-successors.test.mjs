// Kills `leasehold run` (SIGKILL) and its successor, or on a slow machine, or after its renewals
// have failed. Checks that no other command begins before the processes of the command have ended.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { start } from '../support/cli.mjs'
import { until } from '../support/clock.mjs'
import { assertCleanedUp, assertInTurn, contend, processes } from '../support/contend.mjs'
import { atEnd } from '../support/endings.mjs'
import { FOR_EVER } from '../support/journal.mjs'
import { startRelay } from '../support/relay.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const SLOW_LOOK = fileURLToPath(new URL('fixtures/slow-look.cjs', import.meta.url))
/** A shell that runs a command in another session, where only a successor finds it. */
const SETSID = ['sh', '-c', 'setsid "$0" "$@" & wait']

const storeOf = (t) => `sqlite:${join(temporaryFolder(t), 'locks.db')}`
const guardOf = (pid) => processes().find(({ parent, args }) => parent === pid && args.includes('leasehold-guard'))
const successorOf = (guard) =>
  processes().find(({ args }) => args.startsWith(process.execPath) && args.endsWith(`successor.js ${guard.pid}`))

const skip = process.platform === 'linux' ? false : 'needs /proc'
describe('leasehold run, killed', { skip, timeout: 120_000 }, () => {
  test('with its successor, which held the lock: the next one ends a process in another session at once', async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const guard = guardOf(contended.first.pid)
    contended.first.signal('SIGKILL')
    const { locks, holder } = contended
    await until('the lock to be taken over', async () => (await locks.inspect('k'))?.holder !== holder)
    process.kill(successorOf(guard).pid, 'SIGKILL')
    await assertInTurn(t, { ...contended, soon: contended.soon + 5_000 })
  })

  test('with the successor that started before the command: the guard starts another one', async (t) => {
    const words = ['--ttl', '4s', '--grace', '2s']
    const contended = await contend(t, storeOf(t), 'k', { clean: FOR_EVER, wrap: SETSID, words })
    const successor = successorOf(guardOf(contended.first.pid))
    contended.first.signal('SIGKILL')
    process.kill(successor.pid, 'SIGKILL')
    assert.equal((await assertInTurn(t, contended)).ended, false)
  })

  test('the guard hears of the takeover although the search for processes takes longer than the lock lasts', {
    skip: process.versions.bun ? 'Bun ignores --require in NODE_OPTIONS' : false,
  }, async (t) => {
    const words = ['--ttl', '5s', '--grace', '30s']
    const env = { NODE_OPTIONS: `--require ${SLOW_LOOK}`, LOOK: '6000' }
    const contended = await contend(t, storeOf(t), 'k', { clean: 8_000, words, env })
    contended.first.signal('SIGKILL')
    // The successor may search three more times.
    const turn = await assertInTurn(t, { ...contended, soon: contended.soon + 3 * 8_000 })
    await assertCleanedUp(contended, turn, 8_000)
  })

  for (const [what, wrap] of [
    ['the guard kills the command', []],
    ['the successor kills a process in another session', SETSID],
  ]) {
    test(`after its renewals have failed: ${what} before the lock is free`, async (t) => {
      const server = await startRedis(t)
      const relay = await startRelay(t, server.port)
      const words = ['--ttl', '6s', '--grace', '30s']
      const env = { LEASEHOLD_URL: `redis://127.0.0.1:${relay.port}` }
      const contended = await contend(t, server.url(), 'k', { clean: FOR_EVER, wrap, words, env })
      const remaining = async () => (await contended.locks.inspect('k')).remaining
      // Two thirds of the ttl are left at the next renewal.
      await until('the next renewal to be near', async () => (await remaining()) < 4_300)
      relay.bar()
      await until('the lock to end soon', async () => (await remaining()) < 1_900)
      contended.first.signal('SIGKILL')
      await assertInTurn(t, { ...contended, soon: contended.soon + 6_000 })
    })
  }
})

describe('the guard of leasehold run', { skip, timeout: 60_000 }, () => {
  /** Reports many renewals to a guard that is stopped, and says that the command has ended. */
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
      })
    })
    setTimeout(() => {}, 3_000)`

  test('if the guard is stopped, leasehold ends without the guard, which does not end the command later', async (t) => {
    const command = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    atEnd(t, () => command.kill('SIGKILL'))
    const file = fileURLToPath(new URL('../../dist/cli/guard.js', import.meta.url))
    const reporter = start(t, process.execPath, ['-e', REPORTS, file, String(command.pid)])
    await reporter.says(/watched/)
    const guard = guardOf(reporter.pid)
    process.kill(guard.pid, 'SIGSTOP')
    atEnd(t, () => processes().some(({ pid }) => pid === guard.pid) && process.kill(guard.pid, 'SIGKILL'))
    reporter.signal('SIGUSR2')
    assert.deepEqual(await reporter.exited, { code: 0, signal: null })
    process.kill(guard.pid, 'SIGCONT')
    await until('the guard to end', () => !processes().some(({ pid }) => pid === guard.pid))
    assert.equal(command.signalCode, null)
    process.kill(command.pid, 0)
  })
})
