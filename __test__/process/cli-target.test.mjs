// `leasehold run` waits until a process, or all of a process group, has stopped running.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { start } from '../support/cli.mjs'
import { now, until } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'

const { isGoneWithin, isRunning, kill } = createRequire(import.meta.url)('../../dist/cli/target.js')
/** Starts a process in its own group, prints its id, and never reaps it. */
const NEGLIGENT = `
  const { spawn } = require('node:child_process')
  const { pid } = spawn('sh', ['-c', process.argv[1]], { detached: true, stdio: 'ignore' })
  require('node:fs').writeSync(1, pid + '\\n')
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)`

const skip = process.platform === 'linux' ? false : 'only Linux shows which processes are dead'

describe('the target of leasehold run', { timeout: 60_000 }, () => {
  test('a process counts as running until it is gone', async (t) => {
    const child = spawn('sleep', ['60'], { detached: true })
    atEnd(t, () => kill(-child.pid, 'SIGKILL'))
    for (const target of [child.pid, -child.pid]) assert.equal(isRunning(target), true)
    const begin = now()
    assert.equal(await isGoneWithin(-child.pid, 100), false)
    assert.ok(now() - begin >= 99)
    const gone = isGoneWithin(-child.pid, 20_000)
    kill(-child.pid, 'SIGKILL')
    assert.equal(await gone, true)
    for (const target of [child.pid, -child.pid]) assert.equal(isRunning(target), false)
    kill(-child.pid, 'SIGKILL')
  })

  test('a zombie does not count as running, though a signal reaches it', { skip }, async (t) => {
    const parent = start(t, process.execPath, ['-e', NEGLIGENT, 'exit 0'])
    const pid = Number((await parent.says(/(\d+)\n/))[1])
    await until('the process to be dead', () => !isRunning(pid))
    assert.equal(isRunning(-pid), false)
    for (const target of [pid, -pid]) assert.equal(process.kill(target, 0), true)
  })

  test('a group counts as running while any of its processes runs, though its first one is a zombie', {
    skip,
  }, async (t) => {
    const parent = start(t, process.execPath, ['-e', NEGLIGENT, 'sleep 60 & exit 0'])
    const pid = Number((await parent.says(/(\d+)\n/))[1])
    atEnd(t, () => kill(-pid, 'SIGKILL'))
    await until('the process to be dead', () => !isRunning(pid))
    assert.equal(isRunning(-pid), true)
    kill(-pid, 'SIGKILL')
    assert.equal(await isGoneWithin(-pid, 20_000), true)
    assert.equal(process.kill(-pid, 0), true)
  })
})
