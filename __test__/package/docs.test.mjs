// That what the README and the guides show works: every block is compiled, parsed or run, every link leads somewhere.

import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { javaScriptOf, mistakes } from '../support/docs/compiler.mjs'
import { anchors, links, pages, ROOT, readPage } from '../support/docs/page.mjs'

const all = pages()
const blocksIn = (...languages) =>
  all.flatMap(({ blocks }) => blocks).filter(({ language }) => languages.includes(language))
const at = ({ page, line }) => `${page.name}:${line}`
/** SQLite comes with Node from 22.5 on. */
const sqlite = await import('node:sqlite').catch(() => undefined)

/** What one block of `language`, with `before` in front of it, is found to be wrong with. */
const wrongWith = (text, before = '') => mistakes(readPage('page.md', `${before}\n\`\`\`ts\n${text}\n\`\`\`\n`).blocks)

describe('documentation', () => {
  test('every block is of a language that is checked, or is text', () => {
    const known = ['ts', 'js', 'sh', 'json', 'sql', 'lua', 'text']
    const others = all.flatMap(({ blocks }) => blocks).filter(({ language }) => !known.includes(language))
    assert.deepEqual(
      others.map((block) => `${at(block)}: ${block.language || 'no language'}`),
      [],
    )
  })

  test('TypeScript and JavaScript compile under strict', () => {
    const blocks = blocksIn('ts', 'js')
    assert.ok(blocks.length > 30)
    assert.deepEqual(mistakes(blocks), [])
  })

  test('a block that does not compile is found, and where', () => {
    const [missing, wrong, ...others] = wrongWith(
      "import { createLockClient } from 'leasehold'\nlocks.acquire('a')\ncreateLockClient(7)",
    )
    assert.match(missing, /^page\.md:4: Cannot find name 'locks'/)
    assert.match(wrong, /^page\.md:5: Argument of type '7'/)
    assert.deepEqual(others, [])
    assert.match(wrongWith('const a =')[0], /^page\.md:3: Expression expected/)
    assert.match(
      wrongWith('f()', '<!-- ts\ndeclare function f(): Missing\n-->')[0],
      /^page\.md:2: Cannot find name 'Missing'/,
    )
    assert.deepEqual(wrongWith('const f = 1\nf.toFixed()', '<!-- ts\ndeclare function f(): void\n-->'), [])
  })

  test('commands parse', () => {
    const blocks = blocksIn('sh')
    assert.ok(blocks.length > 3)
    for (const block of blocks) {
      const { status, stderr } = spawnSync('sh', ['-n'], { input: block.text, encoding: 'utf8' })
      assert.equal(status, 0, `${at(block)}: ${stderr}`)
    }
  })

  test('JSON parses', () => {
    for (const block of blocksIn('json')) assert.doesNotThrow(() => JSON.parse(block.text), undefined, at(block))
  })

  test('SQL is understood', { skip: !sqlite && 'this Node has no SQLite' }, () => {
    const blocks = blocksIn('sql')
    assert.ok(blocks.length > 0)
    for (const block of blocks) {
      const database = new sqlite.DatabaseSync(':memory:')
      for (const { text } of block.tables) database.exec(text)
      // One after the other: what follows may be about what was made before.
      for (const statement of block.text.split(/;\s*$/m).filter((text) => text.replaceAll(/--.*/g, '').trim())) {
        assert.doesNotThrow(() => database.prepare(statement), undefined, at(block))
        if (/^\s*(create|alter)/i.test(statement.replaceAll(/--.*/g, ''))) database.exec(statement)
      }
      database.close()
    }
  })

  test('what is said to be printed is printed', async () => {
    const blocks = blocksIn('ts', 'js').filter(({ output }) => output !== undefined)
    assert.ok(blocks.length > 3)
    const env = { ...process.env, LEASEHOLD_URL: 'memory:docs', NODE_TEST_CONTEXT: undefined }
    await Promise.all(
      blocks.map(async (block) => {
        const words = ['--input-type=module', '-e', javaScriptOf(block)]
        const options = { cwd: ROOT, env, timeout: 30_000 }
        const { stdout } = await promisify(execFile)(process.execPath, words, options).catch((error) => {
          throw new Error(`${at(block)}: ${error.stderr}`, { cause: error })
        })
        const expected = block.output.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')
        assert.match(stdout.trimEnd(), new RegExp(`^${expected.replaceAll('<number>', '\\d+')}$`), at(block))
      }),
    )
  })

  test('every link leads to a file or a heading', () => {
    const headings = new Map(all.map((page) => [page.name, anchors(page)]))
    const broken = all.flatMap((page) =>
      links(page)
        .filter((link) => {
          const [path, anchor] = link.split('#')
          const target = path ? normalize(join(dirname(page.name), path)) : page.name
          const known = headings.get(target)
          return anchor && known ? !known.includes(anchor) : !existsSync(join(ROOT, target))
        })
        .map((link) => `${page.name}: ${link}`),
    )
    assert.deepEqual(broken, [])
  })
})
