// `npm run demo` as a new user sees it. A run without the lock shows that the demo can fail.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { now, sleep, until, within } from '../support/clock.mjs'
import { startRedis, temporaryFolder } from '../support/servers.mjs'

const DEMO = fileURLToPath(new URL('../../examples/demo/demo.mjs', import.meta.url))

async function run(...words) {
  const start = now()
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined }
  const demo = spawn(process.execPath, [DEMO, ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [demo.stdout, demo.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      output += text
    })
  }
  const [code] = await within('the demo', once(demo, 'close'), 40_000)
  return { code, output, seconds: (now() - start) / 1000 }
}

/** Returns the time of a hand-over in the demo's output, in ms. */
const handOver = (output, what) => Number(new RegExp(`hand-over after ${what} +([\\d.]+) ms`).exec(output)[1])

describe('npm run demo', { timeout: 120_000 }, () => {
  test('on the embedded store, three processes do every job once and in order, despite a stop and a SIGKILL', async () => {
    const { code, output, seconds } = await run()
    assert.equal(code, 0, output)
    assert.match(output, /\n30 jobs by 3 processes: no job was lost, doubled or out of order\.\n$/)
    assert.ok(!output.includes('\u001b'), 'colours are for terminals')
    assert.ok(handOver(output, 'SIGKILL') < 1_000, output)
    assert.ok(seconds < 30, `${seconds} s`)
  })

  test('on Redis, a crash costs at most the ttl', async (t) => {
    const { code, output, seconds } = await run('--store', (await startRedis(t)).url())
    assert.equal(code, 0, output)
    const killed = handOver(output, 'SIGKILL')
    assert.ok(killed > 100 && killed < 2_000 + 500, output)
    assert.ok(seconds < 30, `${seconds} s`)
  })

  test('without the lock, the demo fails and says how', async () => {
    const { code, output } = await run('--without-lock')
    assert.equal(code, 1, output)
    // The jobs before the start of the second process are done once.
    assert.match(output, /jobs done more than once: [1-9]\d* /)
  })

  test('if its reader closes the pipe, like head(1), the demo and its processes end silently', async () => {
    const env = { ...process.env, NODE_TEST_CONTEXT: undefined }
    const demo = spawn(process.execPath, [DEMO], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let errors = ''
    demo.stderr.setEncoding('utf8').on('data', (text) => {
      errors += text
    })
    await within('the first output', once(demo.stdout, 'data'))
    demo.stdout.destroy()
    // The processes share its standard error, which closes with the last of them.
    const [code] = await within('the end', once(demo, 'close'), 20_000).finally(() => demo.stderr.destroy())
    assert.deepEqual([code, errors], [0, ''])
  })

  test('Ctrl-C that a parent passes on ends the demo at once, and its folder is removed', {
    skip: process.platform === 'win32' && 'Windows has no process groups',
  }, async (t) => {
    const TMPDIR = temporaryFolder(t)
    const env = { ...process.env, NODE_TEST_CONTEXT: undefined, TMPDIR }
    const demo = spawn(process.execPath, [DEMO], { env, stdio: ['ignore', 'pipe', 'ignore'], detached: true })
    const ended = once(demo, 'close')
    let output = ''
    demo.stdout.setEncoding('utf8').on('data', (text) => {
      output += text
    })
    await until('a holder', () => output.includes('has the lock'))
    // A terminal sends Ctrl-C to all processes of the group.
    process.kill(-demo.pid, 'SIGINT')
    await sleep(3) // With process.once(), the demo would have no listener any more.
    demo.kill('SIGINT')
    const [code, signal] = await within('the end', ended, 5_000)
    // The copy may arrive after the folder was removed.
    assert.ok(code === 130 || signal === 'SIGINT', `${code ?? signal}`)
    assert.deepEqual(readdirSync(TMPDIR), [])
  })

  for (const [what, words, message] of [
    ['an unknown option', ['--stroe', 'x'], /Unknown option/],
    ['a malformed ttl', ['--ttl', 'soon'], /"ttl" is out of range/],
    ['a store of one process', ['--store', 'memory:x'], /one process only/],
    ['an unreachable store', ['--store', 'redis://:secret@127.0.0.1:1'], /can't be reached/],
  ]) {
    test(`${what} is reported in one line`, async () => {
      const { code, output } = await run(...words)
      assert.equal(code, 1, output)
      assert.match(output, message)
      assert.equal(output.trim().split('\n').length, 1, output)
      assert.doesNotMatch(output, /secret/)
    })
  }
})
