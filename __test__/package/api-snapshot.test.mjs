// The public interface changes only on purpose.

import assert from 'node:assert/strict'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { apiSnapshot, RECORDED } from '../../scripts/api-snapshot.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ADVICE = 'if the change is wanted, run `node scripts/api-snapshot.mjs --record`, and describe it in CHANGELOG.md'

describe('public interface', () => {
  test('the public interface is the recorded one', () => {
    assert.equal(apiSnapshot(), readFileSync(RECORDED, 'utf8'), ADVICE)
  })

  test('a snapshot changes with signatures, names and internal types, and not with comments', (t) => {
    const root = temporaryFolder(t)
    for (const name of ['package.json', 'index.d.ts', 'types'])
      cpSync(join(ROOT, name), join(root, name), { recursive: true })
    const edit = (file, from, to) => {
      const path = join(root, file)
      const before = readFileSync(path, 'utf8')
      assert.ok(before.includes(from), `${file} has no ${from}`)
      writeFileSync(path, before.replace(from, to))
      const text = apiSnapshot(root)
      writeFileSync(path, before)
      return text
    }
    const recorded = apiSnapshot(root)
    assert.equal(edit('types/lease.d.ts', '/** ', '/** Another comment. '), recorded)
    assert.notEqual(edit('types/lease.d.ts', 'readonly fence: number', 'readonly fence: bigint'), recorded)
    assert.notEqual(edit('index.d.ts', "export * from './types/tls'\n", ''), recorded)
    assert.notEqual(
      edit('types/units.d.ts', 'declare enum SecondsUnit {}', 'declare enum SecondsUnit { One }'),
      recorded,
    )
  })
})
