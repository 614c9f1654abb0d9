// Calls the native classes with arguments that TypeScript would reject. A call may throw, but no
// call may end the process.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const FIXTURE = fileURLToPath(new URL('fixtures/wild-native.mjs', import.meta.url))
const { LEASEHOLD_TEST_SEED } = process.env
const SEEDS = LEASEHOLD_TEST_SEED ? [Number(LEASEHOLD_TEST_SEED)] : [1, Date.now() % 1_000_000]

for (const seed of SEEDS) {
  test(`no argument ends the process: LEASEHOLD_TEST_SEED=${seed}`, { timeout: 120_000 }, async (t) => {
    const { code, signal, stdout, stderr } = await new Promise((resolve) => {
      const { signal } = t
      execFile(process.execPath, [FIXTURE, String(seed)], { signal, timeout: 100_000 }, (error, stdout, stderr) => {
        resolve({ code: error?.code ?? 0, signal: error?.signal, stdout, stderr })
      })
    })
    assert.deepEqual([code, signal], [0, undefined], stderr.slice(-2_000))
    const { maxRSS, methods } = JSON.parse(stdout)
    assert.ok(methods > 10, `${methods} methods were called`)
    assert.ok(maxRSS < 600 * 1024, `${maxRSS} KiB were used`)
  })
}
