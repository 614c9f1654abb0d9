// README.md and SECURITY.md: each promise names tests that are there, and the example of the README
// runs. docs.test.mjs tests the other code blocks and the links.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readPage } from '../support/docs/page.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')

/** Asserts that each row of the table below `heading` names tests that are there. */
function assertProofs(text, heading) {
  const table = text.split(`## ${heading}`)[1].split('\n## ')[0]
  const rows = table.split('\n').filter((line) => line.startsWith('| ') && !/^\| (promise|---)/.test(line))
  assert.ok(rows.length >= 8)
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
}

test('SECURITY: every promise names tests that are there', () => {
  assertProofs(readFileSync(join(ROOT, 'SECURITY.md'), 'utf8'), 'What is promised, and against whom')
})

test('a block that starts the demo does not start the tests, which take much longer', () => {
  for (const name of ['README.md', 'CONTRIBUTING.md']) {
    const { blocks } = readPage(name, readFileSync(join(ROOT, name), 'utf8'))
    const first = (script) => blocks.find(({ text }) => text.includes(script))
    assert.ok(first('npm run demo') && first('npm test'), name)
    assert.notEqual(first('npm run demo'), first('npm test'), name)
  }
})

describe('README', () => {
  test('every promise names tests that are there', () => assertProofs(readme, 'What it promises'))

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
