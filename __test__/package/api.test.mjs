// The API reference in docs/ matches the typings, and its links have targets.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TYPEDOC = join(ROOT, 'node_modules', 'typedoc', 'bin', 'typedoc')

/** Returns the text of every file below `folder`, by its relative path. */
function textsBelow(folder) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => statSync(join(folder, name)).isFile())
  return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(folder, name), 'utf8')]))
}

describe('API reference', () => {
  test('the reference is the output of `npm run docs`, which prints no warning', (t) => {
    const out = join(temporaryFolder(t), 'api')
    const { status, stdout, stderr } = spawnSync(process.execPath, [TYPEDOC, '--out', out], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    assert.equal(status, 0, `typedoc refuses the typings:\n${stdout}${stderr}`)
    const [made, committed] = [textsBelow(out), textsBelow(join(ROOT, 'docs', 'api'))]
    assert.ok(Object.keys(made).length > 30)
    const differ = [...new Set([...Object.keys(made), ...Object.keys(committed)])].filter(
      (name) => made[name] !== committed[name],
    )
    assert.deepEqual(differ, [], 'docs/api/ is out of date: run `npm run docs` and commit what it writes')
  })
})
