// `npm run demo` as a newcomer sees it. That its ledger can also fail is shown by running it without the lock.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { now, within } from '../support/clock.mjs'
import { startRedis } from '../support/servers.mjs'

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

/** The hand-over that the demo's output tells of, ms. */
const handOver = (output, what) => Number(new RegExp(`hand-over after ${what} +([\\d.]+) ms`).exec(output)[1])

describe('npm run demo', { timeout: 120_000 }, () => {
  test('on the embedded store: three processes, a stop, a SIGKILL, and every job once and in order', async () => {
    const { code, output, seconds } = await run()
    assert.equal(code, 0, output)
    assert.match(output, /\n30 jobs by 3 processes: no job was lost, doubled or out of order\.\n$/)
    assert.ok(!output.includes('\u001b'), 'colours are for terminals')
    assert.ok(handOver(output, 'SIGKILL') < 1_000, output)
    assert.ok(seconds < 30, `${seconds} s`)
  })

  test('on Redis: a crash costs the ttl, and no more than that', async (t) => {
    const { code, output, seconds } = await run('--store', (await startRedis(t)).url())
    assert.equal(code, 0, output)
    const killed = handOver(output, 'SIGKILL')
    assert.ok(killed > 100 && killed < 2_000 + 500, output)
    assert.ok(seconds < 30, `${seconds} s`)
  })

  test('without the lock it fails, and says how', async () => {
    const { code, output } = await run('--without-lock')
    assert.equal(code, 1, output)
    // All but those that were done before the second had started.
    assert.match(output, /jobs done more than once: [1-9]\d* /)
  })

  test('read by one who has had enough, as head(1): it ends without a word, and so do its processes', async () => {
    const env = { ...process.env, NODE_TEST_CONTEXT: undefined }
    const demo = spawn(process.execPath, [DEMO], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    let said = ''
    demo.stderr.setEncoding('utf8').on('data', (text) => {
      said += text
    })
    await within('its first words', once(demo.stdout, 'data'))
    demo.stdout.destroy()
    // The processes have its standard error as well: it closes with the last of them.
    const [code] = await within('the end', once(demo, 'close'), 20_000).finally(() => demo.stderr.destroy())
    assert.deepEqual([code, said], [0, ''])
  })

  for (const [what, words, message] of [
    ['an unknown option', ['--stroe', 'x'], /Unknown option/],
    ['a ttl that is none', ['--ttl', 'soon'], /"ttl" is out of range/],
    ['a store that is one process’s own', ['--store', 'memory:x'], /one process only/],
    ['a store that is not there', ['--store', 'redis://:secret@127.0.0.1:1'], /can't be reached/],
  ]) {
    test(`${what} is said in one line`, async () => {
      const { code, output } = await run(...words)
      assert.equal(code, 1, output)
      assert.match(output, message)
      assert.equal(output.trim().split('\n').length, 1, output)
      assert.doesNotMatch(output, /secret/)
    })
  }
})
