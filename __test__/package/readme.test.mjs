// What README.md claims: that each promise is proved by the test it names, and that its example runs. Its other blocks and its
// links: docs.test.mjs.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')

describe('README', () => {
  test('every promise names tests that are there', () => {
    const table = readme.split('## What it promises')[1].split('\n## ')[0]
    const rows = table.split('\n').filter((line) => line.startsWith('| ') && !/^\| (promise|---)/.test(line))
    assert.ok(rows.length >= 10)
    for (const row of rows) {
      const proofs = row.split('|')[2].split('[').slice(1)
      assert.ok(proofs.length > 0, row)
      for (const proof of proofs) {
        const [, file, names] = /\]\((.*?)\): (.*)/.exec(proof)
        const source = readFileSync(join(ROOT, file), 'utf8')
        const titles = [...names.matchAll(/\*(.+?)\*/g)].map(([, title]) => title)
        assert.ok(titles.length > 0, row)
        for (const title of titles) assert.ok(source.includes(title), `${file} has no test "${title}"`)
      }
    }
  })

  test('the smallest example runs as it stands', (t) => {
    const [, example] = /```js\n(.*?)```/s.exec(readme)
    const store = `sqlite:${join(temporaryFolder(t), 'locks.db')}`
    const env = { ...process.env, LEASEHOLD_URL: store, NODE_TEST_CONTEXT: undefined }
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', example], {
      cwd: ROOT,
      env,
      encoding: 'utf8',
    })
    assert.match(output, /^working, fence \d+\n$/)
  })
})
