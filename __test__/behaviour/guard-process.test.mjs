// What leasehold sends to the guard of `leasehold run`, and in which order. The test plays the
// guard.

import assert from 'node:assert/strict'
import childProcess from 'node:child_process'
import { EventEmitter } from 'node:events'
import { createRequire } from 'node:module'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'

const require = createRequire(import.meta.url)
const { GuardProcess } = require('../../dist/cli/guard-process.js')

/** Starts a guard that the test plays: { guard, answer(line), heard() }. */
function play(t) {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()]
  const process = Object.assign(new EventEmitter(), { pid: 1, stdin, stdout, kill: () => true, unref: () => {} })
  t.mock.method(childProcess, 'spawn', () => process)
  const guard = new GuardProcess('prepare')
  const answer = async (line) => {
    stdout.write(`${line}\n`)
    await new Promise(setImmediate)
  }
  return { guard, answer, heard: () => String(stdin.read()).trim().split('\n') }
}

test('a report waits for the answer to the line before it, and a newer report replaces it', async (t) => {
  const { guard, answer, heard } = play(t)
  const watches = guard.begin('watch')
  guard.report('first')
  guard.report('second')
  assert.deepEqual(heard(), ['prepare', 'watch'])
  await answer('watching')
  assert.equal(await watches, true)
  assert.deepEqual(heard(), ['second'])
})

test('an urgent line is sent at once, and no older report follows', async (t) => {
  const { guard, answer, heard } = play(t)
  guard.begin('watch')
  guard.report('runs')
  guard.urge('asked')
  assert.deepEqual(heard(), ['prepare', 'watch', 'asked'])
  await answer('watching')
  await answer('reported')
  guard.report('later')
  assert.deepEqual(heard(), ['later'])
})
