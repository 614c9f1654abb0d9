// `import` and `require` give the same library, and the package has the right files.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import * as namespace from 'leasehold'

const imported = { ...namespace }
const require = createRequire(import.meta.url)
const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8'))

const NAMES = [
  'LockAbortedError',
  'LockClosedError',
  'LockError',
  'LockLostError',
  'LockTimeoutError',
  'QuorumError',
  'StoreUnavailableError',
  'createLockClient',
  'createLockWorker',
]

describe('package', () => {
  test('import and require give the same functions and classes', () => {
    const required = require('leasehold')
    for (const name of NAMES) {
      assert.equal(typeof imported[name], 'function', name)
      assert.equal(imported[name], required[name], name)
    }
  })

  test('nothing else is exported', () => {
    assert.deepEqual(
      Object.keys(require('leasehold'))
        .filter((name) => name !== '__esModule')
        .sort(),
      NAMES,
    )
  })

  test('each subpath exports the names of its types, to import and require alike', async () => {
    for (const [path, names] of [
      ['leasehold/express', ['lockRequest']],
      ['leasehold/remix', ['withRequestLock']],
      ['leasehold/otel', ['instrument']],
      ['leasehold/prometheus', ['collect']],
    ]) {
      const required = require(path)
      assert.deepEqual(
        Object.keys(required).filter((name) => name !== '__esModule'),
        names,
      )
      const namespace = await import(path)
      for (const name of names) assert.equal(namespace[name], required[name], name)
    }
  })

  test('package.json can be read, and names files that exist', () => {
    assert.equal(require('leasehold/package.json').name, 'leasehold')
    assert.ok(existsSync(`${ROOT}${manifest.main}`))
    assert.ok(existsSync(`${ROOT}${manifest.types}`))
    assert.deepEqual(Object.keys(manifest.dependencies), ['croner'], 'the package has other dependencies')
    const croner = require('croner/package.json')
    assert.equal(
      manifest.dependencies.croner,
      croner.version,
      'all processes must compute the same ticks, with one version',
    )
    assert.equal(croner.dependencies, undefined)
    assert.equal(croner.scripts.install ?? croner.scripts.postinstall, undefined)
    for (const script of ['install', 'postinstall', 'preinstall']) assert.equal(manifest.scripts[script], undefined)
  })

  test('the first schedule loads croner', () => {
    const script = `
      const locks = require('leasehold').createLockClient('memory:lazy')
      const loaded = () => Object.keys(require.cache).some((path) => path.includes('croner'))
      console.log(loaded())
      locks.schedule('name', '@daily', () => {}, { unref: true })
      console.log(loaded())`
    assert.equal(execFileSync(process.execPath, ['-e', script], { cwd: ROOT, encoding: 'utf8' }), 'false\ntrue\n')
  })

  test('every entry of `exports` is an existing file', () => {
    const files = Object.values(manifest.exports).flatMap((entry) => Object.values(Object(entry)))
    for (const file of files.filter((file) => file.startsWith('./'))) assert.ok(existsSync(`${ROOT}${file}`), file)
  })

  test('`typesVersions` has the types of `exports`, for compilers that do not read `exports`', () => {
    const subpaths = Object.entries(manifest.exports).filter(([path, { types }]) => path !== '.' && types)
    assert.ok(subpaths.length >= 4)
    assert.deepEqual(manifest.typesVersions, {
      '*': Object.fromEntries(subpaths.map(([path, { types }]) => [path.slice('./'.length), [types]])),
    })
  })

  test('the package has the files that a user needs, and no others', () => {
    const [{ files }] = JSON.parse(
      execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: ROOT, encoding: 'utf8' }),
    )
    const paths = files.map(({ path }) => path)
    for (const path of [
      'package.json',
      'index.d.ts',
      'types/client.d.ts',
      'native.cjs',
      'dist/index.js',
      'LICENSE',
      'CHANGELOG.md',
    ])
      assert.ok(paths.includes(path), path)
    assert.ok(
      paths.some((path) => /^leasehold\..+\.node$/.test(path)),
      'the addon',
    )
    // The demo is packed because `leasehold demo` runs it.
    const stray = paths.filter((path) => /^(src|__test__|tests|bench|examples\/(?!demo\/)|target|lib)\//.test(path))
    assert.deepEqual(stray, [])
  })

  test('every error of the library is a LockError with a code and a name', () => {
    const { LockError } = imported
    const errors = [
      [new imported.LockTimeoutError('m'), 'LockTimeoutError', 'ERR_LOCK_TIMEOUT'],
      [new imported.LockLostError('expired', 'm'), 'LockLostError', 'ERR_LOCK_LOST'],
      [new imported.LockAbortedError('m'), 'LockAbortedError', 'ERR_LOCK_ABORTED'],
      [new imported.LockClosedError('m'), 'LockClosedError', 'ERR_LOCK_CLOSED'],
      [new imported.StoreUnavailableError('timeout', 'm'), 'StoreUnavailableError', 'ERR_STORE_UNAVAILABLE'],
      [new imported.QuorumError([], 'm'), 'QuorumError', 'ERR_LOCK_QUORUM'],
      [new LockError('ERR_LOCK_RELEASED', 'm'), 'LockError', 'ERR_LOCK_RELEASED'],
    ]
    for (const [error, name, code] of errors) {
      assert.ok(error instanceof LockError && error instanceof Error)
      assert.deepEqual([error.name, error.code, error.message], [name, code, 'm'])
      assert.match(error.stack, new RegExp(`^${name}`))
    }
  })
})
