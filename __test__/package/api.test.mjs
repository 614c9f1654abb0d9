// That the API reference in docs/ says what the typings say, and that their links lead somewhere.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TYPEDOC = join(ROOT, 'node_modules', 'typedoc', 'bin', 'typedoc')

/** The text of every file below `folder`, by its path there. */
function textsBelow(folder) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => statSync(join(folder, name)).isFile())
  return Object.fromEntries(names.sort().map((name) => [name, readFileSync(join(folder, name), 'utf8')]))
}

describe('API reference', () => {
  test('is what `npm run docs` makes of the typings, without a warning', (t) => {
    const out = join(temporaryFolder(t), 'api')
    const { status, stdout, stderr } = spawnSync(process.execPath, [TYPEDOC, '--out', out], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    assert.equal(status, 0, `typedoc does not like the typings:\n${stdout}${stderr}`)
    const [made, committed] = [textsBelow(out), textsBelow(join(ROOT, 'docs', 'api'))]
    assert.ok(Object.keys(made).length > 30)
    const differ = [...new Set([...Object.keys(made), ...Object.keys(committed)])].filter(
      (name) => made[name] !== committed[name],
    )
    assert.deepEqual(differ, [], 'docs/api/ is out of date: run `npm run docs` and commit what it writes')
  })
})
