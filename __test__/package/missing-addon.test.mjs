// The error without a matching addon names the platform, the package and the remedies.

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

/**
 * Makes a project with leasehold, and with the content `addon` as its addon, if given. Returns its
 * folder.
 */
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

/** Returns the error of createLockClient() in such a project. The process runs `before` first. */
function errorOf(t, { addon, before = '' } = {}) {
  const folder = installed(t, addon)
  const { stdout, stderr } = spawnSync(process.execPath, ['-e', before + SCRIPT], { cwd: folder, encoding: 'utf8' })
  assert.ok(stdout, stderr)
  return JSON.parse(stdout)
}

const pretend = (what) => `for (const [name, value] of Object.entries(${JSON.stringify(what)})) {
  Object.defineProperty(process, name, { value })
}`

describe('without an addon', () => {
  test('the import works, and the first client throws an error with the cause and the remedies', (t) => {
    const { message, code, caused } = errorOf(t)
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

  test('the command prints the error without a stack, and exits like with an unreachable store', (t) => {
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

  test('on an unsupported platform, the error names it and the supported platforms', (t) => {
    const { message } = errorOf(t, { before: pretend({ platform: 'freebsd', arch: 'riscv64' }) })
    assert.match(message, /^leasehold has no native addon for freebsd-riscv64 here/)
    assert.match(message, /There is no package for this platform/)
    for (const { id } of platforms) assert.ok(message.includes(id), `${id}: ${message}`)
    assert.ok(message.includes('https://rustup.rs') && !message.includes('--omit=optional'), message)
  })

  test('a damaged addon is reported as damaged, and not as missing', (t) => {
    const { message } = errorOf(t, { addon: 'no addon' })
    assert.match(message, /is there, but can't be loaded: .+/)
    assert.match(message, /may be damaged/)
    assert.ok(!message.includes('--omit=optional'), message)
  })

  for (const [what, loaderError, remedy] of [
    [
      'glibc is too old',
      "/lib/libc.so.6: version `GLIBC_2.28' not found (required by a.node)",
      /need glibc 2\.28 or later/,
    ],
    ['it is for musl', 'libc.musl-x86_64.so.1: cannot open shared object file', /for the other C library/],
  ]) {
    test(`if ${what}, the error has the message of the loader and a remedy`, (t) => {
      const before = `process.dlopen = () => { throw new Error(${JSON.stringify(loaderError)}) };`
      const { message } = errorOf(t, { addon: 'no addon', before })
      assert.ok(message.includes(loaderError), message)
      assert.match(message, remedy)
    })
  }
})
