// Tests that the workflows pin the actions and packages that they run, and that the script
// check-advisories fails if a database lists a vulnerability.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const WORKFLOWS = join(ROOT, '.github', 'workflows')

const read = (name) => readFileSync(join(WORKFLOWS, name), 'utf8')

describe('workflows', () => {
  for (const name of readdirSync(WORKFLOWS).filter((name) => name.endsWith('.yml'))) {
    test(`${name} pins its actions by commit and has only the permissions that it needs`, () => {
      const text = read(name)
      const used = [...text.matchAll(/uses: (.*)/g)].map(([, action]) => action)
      assert.ok(used.length > 0)
      for (const action of used) assert.match(action, /^(\.\/|[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)/)
      assert.match(text, /^permissions:\n {2}contents: read\n/m)
      assert.doesNotMatch(text, /write-all|contents: write/)
    })
  }

  test('release.yml publishes in its own environment, and only that job may write', () => {
    const [before, publish] = read('release.yml').split(/^ {2}publish:$/m)
    assert.match(publish, /^ {4}environment: npm$/m)
    assert.match(publish, /^ {6}id-token: write$/m)
    assert.doesNotMatch(before, /: write$/m)
    assert.doesNotMatch(before, /secrets\./)
  })

  test('site.yml publishes in a job that runs no code of the project, and only that job may write', () => {
    const [before, publish] = read('site.yml').split(/^ {2}publish:$/m)
    assert.deepEqual(publish.match(/[\w-]+: write$/gm), ['pages: write', 'id-token: write'])
    assert.doesNotMatch(publish, /run:|checkout/)
    assert.doesNotMatch(before, /: write$/m)
  })

  test('pip checks the hash of each package', () => {
    const script = readFileSync(join(ROOT, 'scripts', 'build-linux.sh'), 'utf8')
    for (const [line] of script.matchAll(/.*pip install.*/g)) assert.match(line, /--require-hashes/)
  })
})

describe('check-advisories', () => {
  /** Runs the script with an `npm` that prints `report`, and a `cargo` without `audit`. */
  function check(t, report) {
    const folder = temporaryFolder(t)
    for (const [name, script] of [
      ['npm', `#!/bin/sh\ncat <<'END'\n${JSON.stringify(report)}\nEND\nexit 1\n`],
      ['cargo', '#!/bin/sh\necho "no such command: audit" >&2\nexit 101\n'],
    ]) {
      writeFileSync(join(folder, name), script)
      chmodSync(join(folder, name), 0o755)
    }
    const env = { ...process.env, PATH: [folder, dirname(process.execPath), '/usr/bin', '/bin'].join(delimiter) }
    const script = join(ROOT, 'scripts', 'check-advisories.mjs')
    const { status, stdout } = spawnSync(process.execPath, [script], { env, encoding: 'utf8' })
    return { status, stdout }
  }

  const metadata = { vulnerabilities: { total: 1 } }

  test('a vulnerability fails the check', (t) => {
    const vulnerabilities = { x: { name: 'x', severity: 'high', range: '<2' } }
    assert.deepEqual(check(t, { metadata, vulnerabilities }), {
      status: 1,
      stdout: 'npm audit: x <2: high\ncargo audit: not checked (no such command: audit)\n',
    })
  })

  test('a database that does not answer does not fail the check', (t) => {
    const { status, stdout } = check(t, { message: '405 Method Not Allowed', error: {} })
    assert.equal(status, 0)
    assert.match(stdout, /^npm audit: not checked \(405 Method Not Allowed\)$/m)
  })
})
