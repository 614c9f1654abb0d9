// `leasehold run` finds all processes of its command, kills them, and waits until none of them
// runs.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { start } from '../support/cli.mjs'
import { now, sleep, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const HIDDEN_GROUP = fileURLToPath(new URL('fixtures/hidden-group.mjs', import.meta.url))
const DIST = fileURLToPath(new URL('../../dist/cli', import.meta.url))
const require = createRequire(import.meta.url)
const { statusOf } = require('../../dist/cli/process-table.js')
const { Target } = require('../../dist/cli/target.js')
/** A script that starts a process in a group of its own, prints its id, and never reaps it. */
const NEGLIGENT = `
  const { spawn } = require('node:child_process')
  const { pid } = spawn('sh', ['-c', process.argv[1]], { detached: true, stdio: 'ignore' })
  require('node:fs').writeSync(1, pid + '\\n')
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)`

/**
 * Returns a script that writes a byte to the file $LOG, starts the next process of a chain by
 * `wrap`, and ends.
 */
const chainOf = (wrap) => `trap '' TERM; printf . >>"$LOG"; sleep 0.002; ${wrap} sh -c "$CHAIN" & exit`

const skip = process.platform === 'linux' ? false : 'only Linux has the /proc that leasehold reads'

/**
 * Returns the target that consists of one process or, if `leads`, of all processes of its session.
 */
const targetOf = (pid, leads) => new Target({ pid, start: statusOf(pid)?.start, leads, run: 'no such run' })

describe('the target of leasehold run', { timeout: 60_000 }, () => {
  test('a process counts as running until it is gone', async (t) => {
    const child = spawn('sleep', ['60'], { detached: true })
    const targets = [true, false].map((leads) => targetOf(child.pid, leads))
    atEnd(t, () => targets[0].kill())
    for (const target of targets) assert.equal(target.isRunning(), true)
    const begin = now()
    assert.equal(await targets[0].isGoneWithin(100), false)
    assert.ok(now() - begin >= 99)
    const gone = targets[0].isGoneWithin(20_000)
    targets[0].kill()
    assert.equal(await gone, true)
    for (const target of targets) assert.equal(await target.isGoneWithin(20_000), true)
    targets[0].kill()
  })

  test('a zombie does not count as running, although a signal reaches it', { skip }, async (t) => {
    const parent = start(t, process.execPath, ['-e', NEGLIGENT, 'exit 0'])
    const pid = Number((await parent.says(/(\d+)\n/))[1])
    for (const leads of [false, true]) assert.equal(await targetOf(pid, leads).isGoneWithin(20_000), true)
    for (const target of [pid, -pid]) assert.equal(process.kill(target, 0), true)
  })

  test('a group counts as running while any of its processes runs, even if its first one is a zombie', {
    skip,
  }, async (t) => {
    const parent = start(t, process.execPath, ['-e', NEGLIGENT, 'sleep 60 & exit 0'])
    const pid = Number((await parent.says(/(\d+)\n/))[1])
    const target = targetOf(pid, true)
    atEnd(t, () => target.kill())
    await until('the process to be dead', () => statusOf(pid).dead)
    assert.equal(target.isRunning(), true)
    target.kill()
    assert.equal(await target.isGoneWithin(20_000), true)
    assert.equal(process.kill(-pid, 0), true)
  })

  test('processes that start others as fast as they can are all killed', { skip }, async (t) => {
    const fork = 'while :; do setsid sh -c "sleep 0.02; sleep 60" & sleep 0.01; done'
    const child = spawn('sh', ['-c', fork], { detached: true, env: { ...process.env, LEASEHOLD_RUN: 'forks' } })
    const target = new Target({ pid: child.pid, start: statusOf(child.pid)?.start, leads: true, run: 'forks' })
    atEnd(t, () => target.kill())
    await until('many processes', () => target.look().length > 10)
    assert.equal(await target.isKilledWithin(20_000), true)
    assert.deepEqual(target.look(), [])
  })

  for (const [what, first, next] of [
    ['in the group of the command', '', ''],
    ['in a group of its own', 'setsid', ''],
    ['with a session for each process', 'setsid', 'setsid'],
  ]) {
    test(`a chain of processes that live for a few ms, ${what}, counts as running until it is killed`, {
      skip,
    }, async (t) => {
      const [run, LOG] = [randomUUID(), join(temporaryFolder(t), 'log')]
      const env = { ...process.env, LEASEHOLD_RUN: run, LOG, CHAIN: chainOf(next) }
      const { pid } = spawn('sh', ['-c', chainOf(first)], { detached: true, env, stdio: 'ignore' })
      const target = new Target({ pid, start: statusOf(pid)?.start, leads: true, run })
      atEnd(t, () => target.isKilledWithin(5_000))
      const steps = () => statSync(LOG, { throwIfNoEntry: false })?.size ?? 0
      await until('the chain to run', () => steps() > 10)
      assert.equal(await target.isGoneWithin(1_500), false, 'the chain counts as gone')
      assert.equal(await target.isKilledWithin(5_000), true)
      const last = steps()
      await sleep(300)
      assert.equal(steps(), last, 'the chain goes on')
    })
  }

  const isRoot = process.platform === 'linux' && process.getuid() === 0
  test('if /proc hides the processes of other users, a group with a hidden process counts as running', {
    skip: isRoot ? false : 'only root can mount /proc and start processes of two users',
  }, async (t) => {
    const script = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    const words = ['-m', 'sh', '-c', script, 'sh', process.execPath, HIDDEN_GROUP, '65534', DIST]
    const checked = await start(t, 'unshare', words).ended
    if (/unshare|mount|setpriv/.test(checked.stderr)) t.skip(checked.stderr)
    else assert.deepEqual([checked.stdout, checked.stderr], ['hides true, runs true\n', ''])
  })
})
