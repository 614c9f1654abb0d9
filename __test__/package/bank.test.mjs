// The bank example, in real processes of which one is frozen: without fences, money is lost, and
// with fences, it is not.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'
import { startRedis } from '../support/servers.mjs'

const BANK = fileURLToPath(new URL('../../examples/bank/bank.mjs', import.meta.url))

async function run(t, ...words) {
  const env = { ...process.env, NODE_TEST_CONTEXT: undefined }
  const bank = spawn(process.execPath, [BANK, ...words], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  atEnd(t, () => bank.kill('SIGKILL'))
  let output = ''
  for (const stream of [bank.stdout, bank.stderr]) {
    stream.setEncoding('utf8').on('data', (text) => {
      output += text
    })
  }
  const [code] = await within('the bank', once(bank, 'close'), 40_000)
  return { code, output }
}

const stores = { 'the embedded store': () => [], Redis: async (t) => ['--store', (await startRedis(t)).url()] }

describe('examples/bank', { timeout: 120_000 }, () => {
  for (const [name, words] of Object.entries(stores)) {
    test(`on ${name}, the late write of a frozen holder loses money, and a fence refuses it`, async (t) => {
      const { code, output } = await run(t, ...(await words(t)))
      assert.equal(code, 0, output)
      const [without, withFences] = output.split('With fences')
      assert.match(without, /one +has written: anna 70 · ben 30 · cleo 50\n.*LockLostError.*\n150 of 200 are left/)
      assert.match(withFences, /two +has written: anna 150 · ben 0 · cleo 50/)
      assert.match(withFences, /one +StaleFenceError: fence \d+ of anna is older than \d+/)
      assert.match(withFences, /one +has written: anna 120 · ben 30 · cleo 50\n200 of 200 are there/)
    })
  }

  test('an unusable store is reported in one line', async (t) => {
    for (const [store, message] of [
      [`redis://:secret@127.0.0.1:${await freePort()}`, /can't be reached/],
      ['memory:x', /one process only/],
    ]) {
      const { code, output } = await run(t, '--store', store)
      assert.equal(code, 1, output)
      assert.match(output, message)
      assert.doesNotMatch(output, /secret|\n {4}at /)
    }
  })
})
