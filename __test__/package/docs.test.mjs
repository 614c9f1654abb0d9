// The examples of the README and the guides work: every block is compiled, parsed or run, and every
// link has a target.

import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join, normalize } from 'node:path'
import { describe, test } from 'node:test'
import { promisify } from 'node:util'
import { callsIn, refusals } from '../support/docs/commands.mjs'
import { javaScriptOf, mistakes, NEWEST_NODE } from '../support/docs/compiler.mjs'
import { anchors, links, pages, ROOT, readPage } from '../support/docs/page.mjs'

const all = pages()
const blocksIn = (...languages) =>
  all.flatMap(({ blocks }) => blocks).filter(({ language }) => languages.includes(language))
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const require = createRequire(import.meta.url)
const at = ({ page, line }) => `${page.name}:${line}`
/** Node has SQLite from 22.5 on. */
const sqlite = await import('node:sqlite').catch(() => undefined)

/** Returns the mistakes of a `ts` block with the Markdown `before` in front of it. */
const mistakesOf = (text, before = '') => mistakes(readPage('page.md', `${before}\n\`\`\`ts\n${text}\n\`\`\`\n`).blocks)

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
    assert.deepEqual(mistakes(blocks, NEWEST_NODE), [], 'with the newest types of Node')
  })

  test('a block that does not compile is reported with its line', () => {
    const [missing, wrong, ...others] = mistakesOf(
      "import { createLockClient } from 'leasehold'\nlocks.acquire('a')\ncreateLockClient(7)",
    )
    assert.match(missing, /^page\.md:4: Cannot find name 'locks'/)
    assert.match(wrong, /^page\.md:5: Argument of type '7'/)
    assert.deepEqual(others, [])
    assert.match(mistakesOf('const a =')[0], /^page\.md:3: Expression expected/)
    assert.match(
      mistakesOf('f()', '<!-- ts\ndeclare function f(): Missing\n-->')[0],
      /^page\.md:2: Cannot find name 'Missing'/,
    )
    assert.deepEqual(mistakesOf('const f = 1\nf.toFixed()', '<!-- ts\ndeclare function f(): void\n-->'), [])
  })

  test('a block imports Express, and no comment declares it', () => {
    const blocks = blocksIn('ts', 'js').filter(({ text }) => text.includes('lockRequest('))
    const routes = blocks.filter(({ text }) => /\b(app|router)\.\w+\(/.test(text))
    assert.ok(routes.length > 3)
    for (const block of routes) assert.match(block.text, /^import express\b.* from 'express'$/m, at(block))
    for (const { declarations } of blocksIn('ts', 'js')) {
      for (const { text } of declarations) assert.doesNotMatch(text, /express|\bapp\b|RequestHandler/i)
    }
  })

  test('shell commands parse', () => {
    const blocks = blocksIn('sh')
    assert.ok(blocks.length > 3)
    for (const block of blocks) {
      const { status, stderr } = spawnSync('sh', ['-n'], { input: block.text, encoding: 'utf8' })
      assert.equal(status, 0, `${at(block)}: ${stderr}`)
    }
  })

  test('the leasehold command accepts the calls of the pages', async (t) => {
    const calls = blocksIn('sh', 'text').flatMap(callsIn)
    assert.ok(calls.length > 20)
    assert.deepEqual(await refusals(t, calls), [])
  })

  test('the leasehold command accepts the examples of its own help', async (t) => {
    const names = ['run', 'ls', 'inspect', 'watch', 'release', 'doctor', 'demo', 'bench']
    const calls = names.flatMap((name) => {
      const { examples } = require(`../../dist/cli/${name}.js`)[name]
      return callsIn({ page: { name }, line: 1, text: examples.join('\n') })
    })
    assert.ok(calls.length > 15)
    assert.deepEqual(await refusals(t, calls), [])
  })

  test('a call that the command refuses is reported with its line', async (t) => {
    const wrong = [
      ['leasehold rnu nightly -- ./backup.sh', /unknown command "rnu"/],
      ['leasehold run nightly --wiat 5s -- ./backup.sh', /unknown option --wiat; did you mean --wait\?/],
      ['npx --no-install leasehold run nightly --wait 5 -- ./backup.sh', /--wait takes a time with its unit/],
      ['leasehold run nightly --try --wait 5s -- ./backup.sh', /--try does not wait/],
      ['leasehold run nightly --ttl 1ms -- ./backup.sh', /--ttl takes/],
      ['leasehold run nightly --wait', /--wait needs a value/],
      ['leasehold run nightly', /what is to be run\?/],
      ['leasehold run nightly -- # ./backup.sh', /there is no command behind --/],
      ['leasehold run ./backup.sh nightly', /one argument too many/],
      ['leasehold inspect --json', /too few arguments: leasehold inspect KEY/],
      ["leasehold ls 'a b' c", /one argument too many, "c"/],
      ['leasehold ls --limit many', /--limit takes a whole number/],
      ['leasehold watch --interval 1ms', /--interval takes/],
      ['leasehold bench --time 1h', /--time takes 100ms to 1m/],
      ['leasehold doctor --store radis://localhost', /did you mean redis:\/\/\?/],
      ['leasehold doctor --strict=yes', /--strict takes no value/],
      ['leasehold demo --ttl soon', /--ttl takes a time/],
      ['leasehold release nightly --yes', /--force/],
      ['leasehold ls --json | leasehold lss | leasehold ls', /unknown command "lss"/],
      ['0 3 * * *  leasehold run nightly --tri -- ./backup.sh || [ $? -eq 75 ]', /unknown option --tri/],
      ['ExecStart=/usr/bin/leasehold run cleanup --max-hold -- /srv/cleanup', /--max-hold needs a value/],
      ['said=$(leasehold doctor --strikt 2>&1) || echo "$said"', /unknown option --strikt/],
      ['leasehold run nightly \\\n  --wiat 5s -- ./backup.sh', /unknown option --wiat/],
      ['false && leasehold ls', /nothing was called/],
    ]
    const found = await Promise.all(
      wrong.map(([text], index) => refusals(t, callsIn({ page: { name: 'page.md' }, line: index + 1, text }))),
    )
    for (const [index, [text, message]] of wrong.entries()) {
      assert.equal(found[index].length, 1, text)
      assert.match(found[index][0], message)
      assert.ok(found[index][0].startsWith(`page.md:${index + 1}: `), found[index][0])
    }
  })

  test('scripts that pages name exist', () => {
    const missing = all.flatMap(({ name, source }) =>
      source.split('\n').flatMap((text, index) => {
        const names = [...text.matchAll(/\bnpm run ([\w:.-]*\w)/g)].map(([, script]) => script)
        const paths = [...text.matchAll(/(?<![\w./-])(?:scripts|\.ci)\/[\w./-]*\w/g)].map(([path]) => path)
        const unknown = names.filter((script) => !(script in scripts)).map((script) => `npm run ${script}`)
        return [...unknown, ...paths.filter((path) => !existsSync(join(ROOT, path)))].map(
          (what) => `${name}:${index + 1}: ${what}`,
        )
      }),
    )
    assert.deepEqual(missing, [])
  })

  test('JSON parses', () => {
    for (const block of blocksIn('json')) assert.doesNotThrow(() => JSON.parse(block.text), undefined, at(block))
  })

  test('SQL parses', { skip: !sqlite && 'this Node has no SQLite' }, () => {
    const blocks = blocksIn('sql')
    assert.ok(blocks.length > 0)
    for (const block of blocks) {
      const database = new sqlite.DatabaseSync(':memory:')
      for (const { text } of block.tables) database.exec(text)
      // Statements run in order, because later ones may use tables of earlier ones.
      for (const statement of block.text.split(/;\s*$/m).filter((text) => text.replaceAll(/--.*/g, '').trim())) {
        assert.doesNotThrow(() => database.prepare(statement), undefined, at(block))
        if (/^\s*(create|alter)/i.test(statement.replaceAll(/--.*/g, ''))) database.exec(statement)
      }
      database.close()
    }
  })

  test('blocks print the output that the pages show', async () => {
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
