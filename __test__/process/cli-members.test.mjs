// Tests which processes belong to the command of `leasehold run`, and how /proc is read.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const dist = (name) => createRequire(import.meta.url)(`../../dist/cli/${name}.js`)
const { newMark, ...mark } = dist('mark')
const runsIn = (environ) => mark.runsIn(Buffer.from(environ))
const { membersOf } = dist('members')
const { isHiding, parseStatus } = dist('process-table')

/** A process whose parent, group and session have ended, unless `more` says otherwise. */
const status = (pid, more = {}) => {
  const base = { pid, parent: 1, group: 999, session: 999, start: `${pid}0`, dead: false, runs: undefined }
  return { ...base, ...more }
}
const COMMAND = { pid: 10, start: '100', leads: true, run: 'ours' }

/** Returns the ids of the members, those of nested ones with a minus. */
function found(all, command = COMMAND, known = []) {
  return membersOf(all, command, known).map(({ pid, nested }) => (nested ? -pid : pid))
}

describe('the members of a command', () => {
  test('are the command, its session, its children, and the processes with its mark', () => {
    const all = [
      status(1, { parent: 0 }),
      status(10),
      status(11, { session: 10 }),
      status(12, { parent: 11 }),
      status(13, { parent: 12, dead: true }),
      status(14, { runs: ['outer', 'ours'] }),
      status(15, { parent: 16 }),
      status(16, { runs: ['ours'] }),
      status(20),
      status(21, { runs: ['theirs'] }),
    ]
    assert.deepEqual(found(all), [10, 11, 12, 13, 14, 15, 16])
  })

  test('do not include a process with an empty mark, nor its children', () => {
    const all = [status(10), status(11, { parent: 10, session: 10, runs: [] }), status(12, { parent: 11 })]
    assert.deepEqual(found(all), [10])
    assert.deepEqual(found(all, COMMAND, [{ ...all[1], nested: false }]), [10])
  })

  test('are nested if they run under a nested leasehold', () => {
    const all = [
      status(10, { runs: ['ours'] }),
      status(11, { runs: ['ours', 'inner'] }),
      status(12, { parent: 11 }),
      status(13, { parent: 10, runs: ['inner'] }),
      status(14, { session: 10, runs: ['inner'] }),
    ]
    assert.deepEqual(found(all), [10, -11, -12, -13, -14])
  })

  test('include a process whose parent is gone, but no later process with its id', () => {
    const known = membersOf([status(10), status(11, { parent: 10 })], COMMAND, [])
    assert.deepEqual(found([status(11)], COMMAND, known), [11])
    assert.deepEqual(found([status(11, { start: '7' }), status(10, { start: '7' })], COMMAND, known), [])
  })

  test('do not include the session of a later process with the id of the command', () => {
    const all = [status(10, { start: '200' }), status(11, { session: 10 }), status(12, { runs: ['ours'] })]
    assert.deepEqual(found(all), [12])
  })

  test('do not include the session of the user on a terminal', () => {
    const all = [status(10, { session: 5 }), status(11, { session: 5 }), status(12, { session: 10 })]
    assert.deepEqual(found(all, { ...COMMAND, leads: false }), [10])
  })

  test('are found in a list in which two processes are each other’s parents', () => {
    assert.deepEqual(found([status(11, { parent: 12 }), status(12, { parent: 11 })]), [])
    assert.deepEqual(found([status(11, { parent: 11 })]), [])
  })
})

describe('the mark of a command', () => {
  test('lists the runs that a process belongs to, the outermost first', () => {
    const outer = newMark(undefined)
    const inner = newMark(outer.mark)
    assert.notEqual(outer.run, inner.run)
    assert.deepEqual(runsIn(`A=1\0LEASEHOLD_RUN=${inner.mark}\0`), [outer.run, inner.run])
    assert.deepEqual(runsIn(`LEASEHOLD_RUN=${newMark('').mark}\0`).length, 1)
  })

  test('may be empty or missing', () => {
    assert.deepEqual(runsIn('A=1\0LEASEHOLD_RUN=\0B=2\0'), [])
    assert.equal(runsIn('A=LEASEHOLD_RUN=x\0LEASEHOLD_RUNS=x\0'), undefined)
    assert.equal(runsIn(''), undefined)
  })

  test('large environments are not kept in memory', () => {
    const script = `
      const { runsIn } = require(process.argv[1])
      const kept = []
      for (let i = 0; i < 200; i++) kept.push(runsIn(Buffer.from('A='.padEnd(1e6, 'x') + '\\0LEASEHOLD_RUN=some-rather-long-run-' + i + '\\0')))
      console.log(kept.length)`
    const file = fileURLToPath(new URL('../../dist/cli/mark.js', import.meta.url))
    const { stdout, stderr } = spawnSync(process.execPath, ['--max-old-space-size=64', '-e', script, file], {
      encoding: 'utf8',
    })
    assert.equal(stdout, '200\n', stderr)
  })
})

describe('the parser of /proc', () => {
  const stat = (state, threads) => `7 (a) R 1) ${state} 2 3 4 0 -1 0 0 0 0 0 0 0 0 0 20 0 ${threads} 0 12345 0`

  test('reads the status of a process', () => {
    const expected = { pid: 7, parent: 2, group: 3, session: 4, start: '12345', dead: false }
    assert.deepEqual(parseStatus(7, stat('S', 1)), expected)
    assert.equal(parseStatus(7, stat('Z', 1)).dead, true)
    assert.equal(parseStatus(7, stat('Z', 2)).dead, false, 'its other threads run')
  })

  test('finds out whether /proc hides processes', () => {
    const mounts = (options) => `sysfs /sys sysfs rw 0 0\nproc /proc proc ${options} 0 0\ntmpfs /tmp tmpfs rw 0 0\n`
    assert.equal(isHiding(mounts('rw,nosuid,hidepid=2')), true)
    assert.equal(isHiding(mounts('rw,hidepid=invisible,gid=4')), true)
    assert.equal(isHiding(mounts('rw,hidepid=off')), false)
    assert.equal(isHiding(mounts('rw,relatime')), false)
    assert.equal(isHiding(mounts('hidepid=2') + mounts('rw')), false, 'the last mount covers the first')
    assert.equal(isHiding(''), false)
  })
})
