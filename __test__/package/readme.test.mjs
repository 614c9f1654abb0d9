// README.md, docs/promises.md and SECURITY.md: each promise names existing tests, the example of
// the README runs, and its figures are those of docs/benchmarks.md. docs.test.mjs tests the other
// code blocks and the links, and peers.test.mjs runs the experiment.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readPage } from '../support/docs/page.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')

/** Returns the promises of the table below `heading`. */
function promisesOf(page, heading) {
  const [, text] = readFileSync(join(ROOT, page), 'utf8').split(`# ${heading}\n`)
  const table = text.split('\n## ')[0]
  return table.split('\n').filter((line) => line.startsWith('| ') && !/^\| (promise|---)/.test(line))
}

/** Asserts that the table has at least `count` promises, and that each names existing tests. */
function assertProofs(page, heading, count) {
  const rows = promisesOf(page, heading)
  assert.ok(rows.length >= count, `${rows.length} rows`)
  for (const row of rows) {
    const proofs = row.split('|')[2].split('[').slice(1)
    assert.ok(proofs.length > 0, row)
    for (const proof of proofs) {
      const [, file, names] = /\]\((.*?)\): (.*)/.exec(proof)
      const source = readFileSync(join(ROOT, dirname(page), file), 'utf8')
      const titles = [...names.matchAll(/\*(.+?)\*/g)].map(([, title]) => title)
      assert.ok(titles.length > 0, row)
      for (const title of titles) assert.ok(source.includes(title), `${file} has no test "${title}"`)
    }
  }
}

test('SECURITY: every promise names existing tests', () => {
  assertProofs('SECURITY.md', 'What is promised, and against whom', 8)
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
  test('every promise names existing tests', () => assertProofs('docs/promises.md', 'Promises', 30))

  test('the README has promises of the table, and at most 220 lines', () => {
    const bold = (line) => /\*\*(.*?)\.?\*\*/.exec(line)?.[1]
    const names = promisesOf('docs/promises.md', 'Promises').map(bold)
    const [, section] = /\n## Promises\n([\s\S]*?)\n## /.exec(readme)
    const own = section.split('\n').filter((line) => line.startsWith('- '))
    assert.equal(own.length, 5)
    for (const line of own) assert.ok(names.includes(bold(line)), line)
    assert.ok(readme.split('\n').length <= 221)
  })

  test('the README has the figures of docs/benchmarks.md', () => {
    const tables = readFileSync(join(ROOT, 'docs/benchmarks.md'), 'utf8').split('\n')
    const cells = (name) =>
      tables
        .filter((line) => line.replaceAll('*', '').startsWith(`| ${name}`))
        .flatMap((line) => line.replaceAll(/[*|/]|ms|µs|turns|pairs/g, ' ').split(/\s{2,}/))
        .flatMap((cell) => [cell.trim(), ...cell.trim().split(' / ')])
    const figures = {
      leasehold: ['71', '0.42', '0.80', '222 500', '0.9', '15.9', '159 700'],
      redlock: ['53', '118', '67 700', '14', '34', '13 700', '0.18'],
      'redis-semaphore': ['49', '0.46', '4.4', '77 300', '13', '31', '11 100', '0.47'],
    }
    const [, why] = /\n## Why leasehold\n([\s\S]*?)\n\n[A-Z]/.exec(readme)
    const [, summary] = /\n## Benchmarks\n([\s\S]*?)\n## /.exec(readme)
    const shown = [...why.split('\n').filter((row) => row.includes('benchmarks.md')), summary].join('\n')
    for (const [name, values] of Object.entries(figures)) {
      for (const value of values) {
        assert.ok(cells(name).includes(value), `${name}: docs/benchmarks.md has no ${value}`)
        assert.match(shown, new RegExp(`(?<![\\d.])${value.replace('.', '\\.')}(?![\\d.]*\\d)`), `${name}: ${value}`)
      }
    }
  })

  test('the smallest example runs unchanged', (t) => {
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
