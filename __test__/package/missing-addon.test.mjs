// What people read when no addon fits: which platform, what was looked for, what to do.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ownPlatform, platforms } from '../../scripts/platforms.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const own = ownPlatform()

const SCRIPT = `
const leasehold = require(${JSON.stringify('./node_modules/leasehold')})
try {
  leasehold.createLockClient('memory:jobs')
  console.log('{}')
} catch ({ message, code, cause }) {
  console.log(JSON.stringify({ message, code, caused: cause instanceof Error }))
}`

/** The folder of a project with leasehold and no addon, or one that is `addon`. */
function installed(t, addon) {
  const folder = temporaryFolder(t)
  const modules = join(folder, 'node_modules')
  for (const name of ['package.json', 'native.cjs', 'dist']) {
    cpSync(join(ROOT, name), join(modules, 'leasehold', name), { recursive: true })
  }
  if (addon !== undefined) {
    mkdirSync(join(modules, own.name))
    writeFileSync(join(modules, own.name, 'package.json'), JSON.stringify({ name: own.name, main: own.binary }))
    writeFileSync(join(modules, own.name, own.binary), addon)
  }
  return folder
}

/** What a client made there throws. `before` is run first, in its process. */
function thrown(t, { addon, before = '' } = {}) {
  const folder = installed(t, addon)
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', before + SCRIPT], { cwd: folder, encoding: 'utf8' })
  assert.ok(stdout, stderr)
  return JSON.parse(stdout)
}

const pretend = (what) => `for (const [name, value] of Object.entries(${JSON.stringify(what)})) {
  Object.defineProperty(process, name, { value })
}`

describe('without an addon', () => {
  test('importing works, and the first client says what is missing and why that may be', (t) => {
    const { message, code, caused } = thrown(t)
    assert.equal(code, 'ERR_LOCK_NO_ADDON')
    assert.ok(caused, "the loader's own error is its cause")
    assert.match(
      message,
      new RegExp(`^leasehold has no native addon for ${own.id} here \\(Node ${process.versions.node}`),
    )
    assert.ok(message.includes(`the package ${own.name}`) && message.includes(own.binary), message)
    for (const remedy of ['--omit=optional', 'package-lock.json', 'container', 'bundler', 'https://rustup.rs']) {
      assert.ok(message.includes(remedy), `${remedy}: ${message}`)
    }
  })

  test('the command line says the same without a stack, with the exit code of a store that is out of reach', (t) => {
    const folder = installed(t)
    const cli = join(folder, 'node_modules', 'leasehold', 'dist', 'cli', 'index.js')
    const { stdout, stderr, status } = spawnSync(
      process.execPath,
      [cli, 'inspect', 'nightly', '--store', `sqlite:${join(folder, 'locks.db')}`],
      { encoding: 'utf8' },
    )
    assert.equal(status, 69, stderr)
    assert.equal(stdout, '')
    assert.match(stderr, new RegExp(`^leasehold: leasehold has no native addon for ${own.id} here`))
    assert.doesNotMatch(stderr, /\n +at /)
  })

  test('a platform that no package is published for is named, and those that there are', (t) => {
    const { message } = thrown(t, { before: pretend({ platform: 'freebsd', arch: 'riscv64' }) })
    assert.match(message, /^leasehold has no native addon for freebsd-riscv64 here/)
    assert.match(message, /There is no package for this platform/)
    for (const { id } of platforms) assert.ok(message.includes(id), `${id}: ${message}`)
    assert.ok(message.includes('https://rustup.rs') && !message.includes('--omit=optional'), message)
  })

  test('an addon that is there but damaged is not said to be missing', (t) => {
    const { message } = thrown(t, { addon: 'no addon' })
    assert.match(message, /is there, but can't be loaded: .+/)
    assert.match(message, /may be damaged/)
    assert.ok(!message.includes('--omit=optional'), message)
  })

  for (const [what, said, remedy] of [
    [
      'glibc is too old',
      "/lib/libc.so.6: version `GLIBC_2.28' not found (required by a.node)",
      /need glibc 2\.28 or later/,
    ],
    ['it is for musl', 'libc.musl-x86_64.so.1: cannot open shared object file', /for the other C library/],
  ]) {
    test(`${what}: that is what the system's loader says, and what to do about it`, (t) => {
      const before = `process.dlopen = () => { throw new Error(${JSON.stringify(said)}) };`
      const { message } = thrown(t, { addon: 'no addon', before })
      assert.ok(message.includes(said), message)
      assert.match(message, remedy)
    })
  }
})
