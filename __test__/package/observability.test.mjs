// What docs/observability.md claims: the metrics and channels that there are, all of them, and code that runs.

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
  test('names the metrics of Prometheus that there are, and all of them', (t) => {
    const register = new Registry()
    const locks = createLockClient('memory:guide')
    atEnd(t, () => locks.close())
    collect(locks, { register })
    const [, table] = guide.split('| metric | type |')[1].match(/^([\s\S]*?)\n\n/)
    const named = [...table.matchAll(/`(leasehold_\w+)`/g)].map(([, name]) => name)
    const there = register.getMetricsAsArray().map(({ name }) => name)
    assert.deepEqual(unique(named), unique(there))
    for (const [, name] of guide.matchAll(/\b(leasehold_\w+)/g)) {
      if (name !== 'leasehold_') assert.ok(there.includes(name.replace(/_bucket$/, '')), name)
    }
  })

  test('names the channels that there are, and all of them', () => {
    const table = guide.split('| channel | when |')[1].split('\n\n')[0]
    const named = [...table.matchAll(/^\| `([\w:]+?)(?::\*)?`/gm)].map(([, name]) => name)
    const there = declared.names.map((name) => (name.startsWith('tracing:') ? name.replace(/:\w+$/, '') : name))
    assert.deepEqual(unique(named), unique(there))
  })

  const blocks = [...guide.matchAll(/```js\n([\s\S]*?)```/g)].map(([, code]) => code)
  for (const [i, code] of blocks.entries()) {
    test(`its code runs as it stands: block ${i + 1} of ${blocks.length}`, () => {
      // What the guide has shown before is not shown again.
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
