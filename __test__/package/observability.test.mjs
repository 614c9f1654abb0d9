// docs/observability.md names all metrics and channels, and its code runs.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockClient } from 'leasehold'
import { collect } from 'leasehold/prometheus'
import { Registry } from 'prom-client'
import { declared } from '../support/channels.mjs'
import { atEnd } from '../support/endings.mjs'

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

  const blocks = [...guide.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code)
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
})
