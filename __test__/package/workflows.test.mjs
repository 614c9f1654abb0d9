// The workflows run code of others only in a version that was looked at, and known vulnerabilities are
// found where their databases can be reached.

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
    test(`${name} pins its actions by commit and has no rights that it does not need`, () => {
      const text = read(name)
      const used = [...text.matchAll(/uses: (.*)/g)].map(([, action]) => action)
      assert.ok(used.length > 0)
      for (const action of used) assert.match(action, /^(\.\/|[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)/)
      assert.match(text, /^permissions:\n {2}contents: read\n/m)
      assert.doesNotMatch(text, /write-all|contents: write/)
    })
  }

  test('release.yml publishes in an environment of its own, with the only right to write', () => {
    const [before, publish] = read('release.yml').split(/^ {2}publish:$/m)
    assert.match(publish, /^ {4}environment: npm$/m)
    assert.match(publish, /^ {6}id-token: write$/m)
    assert.doesNotMatch(before, /: write$/m)
    assert.doesNotMatch(before, /secrets\./)
  })

  test('what comes from PyPI has a hash', () => {
    const script = readFileSync(join(ROOT, 'scripts', 'build-linux.sh'), 'utf8')
    for (const [line] of script.matchAll(/.*pip install.*/g)) assert.match(line, /--require-hashes/)
  })
})

describe('check-advisories', () => {
  /** Runs the script with an `npm` that prints `report`, and a cargo without `audit`. */
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

  test('a vulnerability fails', (t) => {
    const vulnerabilities = { x: { name: 'x', severity: 'high', range: '<2' } }
    assert.deepEqual(check(t, { metadata, vulnerabilities }), {
      status: 1,
      stdout: 'npm audit: x <2: high\ncargo audit: not checked (no such command: audit)\n',
    })
  })

  test('a database that does not answer does not', (t) => {
    const { status, stdout } = check(t, { message: '405 Method Not Allowed', error: {} })
    assert.equal(status, 0)
    assert.match(stdout, /^npm audit: not checked \(405 Method Not Allowed\)$/m)
  })
})
