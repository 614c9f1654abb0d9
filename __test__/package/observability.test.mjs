// docs/observability.md names all metrics and channels, and its code runs.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { Registry } from 'prom-client'
import { declared } from '../support/channels.mjs'
import { until, within } from '../support/clock.mjs'
import { atEnd } from '../support/endings.mjs'
import { freePort } from '../support/ports.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const guide = readFileSync(join(ROOT, 'docs', 'observability.md'), 'utf8')
const unique = (words) => [...new Set(words)].sort()

const IMPORTS = `
import { subscribe, tracingChannel } from 'node:diagnostics_channel'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { instrument } from 'leasehold/otel'
import { register } from 'prom-client'
`

describe('docs/observability.md', () => {
  test('the guide names exactly the metrics that exist', (t) => {
    const register = new Registry()
    const locks = createLockClient('memory:guide')
    atEnd(t, () => locks.close())
    collect(locks, { register })
    const [, table] = guide.split('| metric | type |')[1].match(/^([\s\S]*?)\n\n/)
    const named = [...table.matchAll(/`(leasehold_\w+)`/g)].map(([, name]) => name)
    const existing = register.getMetricsAsArray().map(({ name }) => name)
    assert.deepEqual(unique(named), unique(existing))
    for (const [, name] of guide.matchAll(/\b(leasehold_\w+)/g)) {
      if (name !== 'leasehold_') assert.ok(existing.includes(name.replace(/_bucket$/, '')), name)
    }
  })

  test('the guide names exactly the channels that exist', () => {
    const table = guide.split('| channel | when |')[1].split('\n\n')[0]
    const named = [...table.matchAll(/^\| `([\w:]+?)(?::\*)?`/gm)].map(([, name]) => name)
    const existing = declared.names.map((name) => (name.startsWith('tracing:') ? name.replace(/:\w+$/, '') : name))
    assert.deepEqual(unique(named), unique(existing))
  })

  const allBlocks = [...guide.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code)
  /** Returns the name of a whole program, which is its first line; `undefined` for other blocks. */
  const nameOf = (code) => /^\/\/ (\w+\.mjs)\n/.exec(code)?.[1]
  const programs = new Map(allBlocks.map((code) => [nameOf(code), code]))
  const blocks = allBlocks.filter((code) => nameOf(code) === undefined)
  for (const [i, code] of blocks.entries()) {
    test(`block ${i + 1} of ${blocks.length} runs unchanged`, () => {
      // Later blocks use the client of the first block.
      const before = code.includes('const locks') ? '' : `const locks = createLockClient('redis://localhost:6379')\n`
      const program = IMPORTS + before + code.replace(/^import .*$/gm, '')
      for (const [line] of code.matchAll(/^import .*$/gm)) assert.ok(IMPORTS.includes(line), line)
      execFileSync(process.execPath, ['--input-type=module', '-e', program], {
        cwd: ROOT,
        stdio: 'pipe',
        timeout: 30_000,
      })
    })
  }

  /** Starts a whole program of the guide. Returns its process. */
  function start(t, name, env = {}) {
    const words = ['--input-type=module', '-e', programs.get(name)]
    const own = { ...process.env, LEASEHOLD_URL: 'memory:guide', NODE_TEST_CONTEXT: undefined, ...env }
    const child = spawn(process.execPath, words, { cwd: ROOT, env: own, stdio: ['ignore', 'pipe', 'inherit'] })
    atEnd(t, () => child.kill())
    return child
  }

  test("spans.mjs prints the spans of a lock, as children of the caller's span, and ends", async (t) => {
    const child = start(t, 'spans.mjs')
    const [printed, [code]] = await within('the end', Promise.all([text(child.stdout), once(child, 'exit')]), 30_000)
    assert.equal(code, 0)
    const found = (pattern) => [...printed.matchAll(pattern)].map(([, value]) => value)
    const names = found(/^ {2}name: '(.*)',$/gm)
    assert.deepEqual(unique(names), ['leasehold acquire', 'leasehold hold', 'leasehold release', 'pay'])
    assert.equal(names.length, 4)
    assert.equal(unique(found(/^ {2}traceId: '(\w+)',$/gm)).length, 1)
    const caller = found(/^ {2}id: '(\w+)',$/gm)[names.indexOf('pay')]
    assert.deepEqual(found(/^ {4}spanId: '(\w+)',$/gm), [caller, caller, caller])
  })

  test('metrics.mjs serves the metrics of its lock', async (t) => {
    const port = await freePort()
    start(t, 'metrics.mjs', { PORT: String(port) })
    const url = `http://127.0.0.1:${port}`
    const acquired = /^leasehold_acquires_total\{.*outcome="acquired".*\} 1$/m
    const scrape = () => fetch(`${url}/metrics`).then(async (response) => acquired.test(await response.text()))
    await until('the metrics', () => scrape().catch(() => false))
    assert.equal((await fetch(url)).status, 404)
  })
})
