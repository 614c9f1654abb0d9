// `npm run test:runtimes` must count results right: if it misread a report, every runtime would
// seem to pass.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readReport } from '../../scripts/junit.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const SCRIPT = fileURLToPath(new URL('../../scripts/runtimes.mjs', import.meta.url))

const SAMPLE = `
import { describe, test } from 'node:test'
describe('a suite', () => {
  test('passes', () => {})
  test('<fails> & says > why', () => { throw new Error('<testcase name="none"><skipped/></testcase>') })
  test('is skipped', { skip: 'for now' }, () => {})
  describe('within', () => test('passes, too', () => {}))
})
`

describe('runtimes', () => {
  test('the results in a report of Node are counted', (t) => {
    const file = join(temporaryFolder(t), 'sample.test.mjs')
    writeFileSync(file, SAMPLE)
    const { stdout, status } = spawnSync(process.execPath, ['--test', '--test-reporter=junit', file], {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined },
      encoding: 'utf8',
    })
    assert.equal(status, 1)
    assert.deepEqual(readReport(stdout), { passed: 2, failed: ['<fails> & says > why'], skipped: 1 })
  })

  test('a suite that Deno reports as a test is not counted', () => {
    const report = `
      <testcase name="a suite" time="1"><failure message="due to 1 failed step"></failure></testcase>
      <testcase name="a suite &gt; passes" time="1">
      </testcase>
      <testcase name="a suite &gt; fails" time="1"><failure message="why">Error</failure></testcase>
      <testcase name="a suite &gt; is skipped" time="0"><skipped/></testcase>
      <testcase name="alone"></testcase>`
    assert.deepEqual(readReport(report), { passed: 2, failed: ['a suite > fails'], skipped: 1 })
  })

  test('a misspelt argument is an error, and no test runs', () => {
    for (const [words, message] of [
      [['node@4'], 'no runtime is called node@4; there are node@20, node@22, node@24, node@26, bun, deno'],
      [['--parts', 'behavior'], 'no part is called behavior; there are behaviour, worker,'],
      [['--jsno'], "Unknown option '--jsno'"],
    ]) {
      const { status, stdout, stderr } = spawnSync(process.execPath, [SCRIPT, ...words], { encoding: 'utf8' })
      assert.ok(stderr.startsWith(message), stderr)
      assert.deepEqual({ status, stdout }, { status: 2, stdout: '' })
    }
  })
})
