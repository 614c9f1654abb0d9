// Errors about two copies of leasehold in one process name both, and say what to do.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { beforeEach, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { createLockWorker } from 'leasehold'
import { instrument } from 'leasehold/otel'
import { collect } from 'leasehold/prometheus'
import { atEnd } from '../support/endings.mjs'
import { copyPackage } from '../support/packages.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const require = createRequire(import.meta.url)
const ROOT = fileURLToPath(new URL('../..', import.meta.url)).replace(/[\\/]$/, '')
const { version } = require('../../package.json')
const { ErrorKind } = require('../../dist/native/protocol.js')

const ADVICE =
  '`npm ls leasehold` shows which packages need them, and `npm dedupe` leaves one if their versions allow it'

/** Loads a copy of the package under the number `version`, and opens a client of it. */
function loadCopy(t, folder, version) {
  const locks = require(copyPackage(folder, version)).createLockClient('memory:copies')
  atEnd(t, () => locks.close())
  return { locks, errors: require(join(folder, 'dist', 'diagnostics', 'errors.js')) }
}

/** Asserts that calls that take a client refuse `client`, and passes their messages to `check`. */
function assertRefused(client, check) {
  for (const call of [
    () => collect(client),
    () => instrument(client),
    () => createLockWorker({ client, key: 'k', startWork: () => {} }),
  ]) {
    assert.throws(call, ({ code, message }) => {
      assert.equal(code, 'ERR_INVALID_ARG_TYPE')
      check(message.replace(/^\w+\(\): /, ''))
      return true
    })
  }
}

const REFUSED =
  'The "client" argument must be a LockClient made by createLockClient(). ' +
  `Received one of another copy of leasehold: load both from the same copy. This copy is ${version} in ${ROOT}. The other copy is `

// Forgets the copies of earlier tests.
beforeEach(() => Reflect.deleteProperty(globalThis, Symbol.for('leasehold.copies')))

test('if the other copy has opened no client here, the error says that the copy is not known', () => {
  class LockClient {
    withLock() {}
    tryAcquire() {}
    inspect() {}
  }
  const message = `${REFUSED}not known here: it may be in another thread or realm. ${ADVICE}`
  assertRefused(new LockClient(), (told) => assert.equal(told, message))
})

test('the error of a client of another copy names the versions and the folders of both', (t) => {
  const folder = join(temporaryFolder(t), 'copy')
  const { locks } = loadCopy(t, folder, '0.1.7')
  const message = `${REFUSED}0.1.7 in ${folder}. ${ADVICE}`
  assertRefused(locks, (told) => assert.equal(told, message))
})

test('the error of a lock file that other copies have open names the versions and the folders of all', (t) => {
  const folder = temporaryFolder(t)
  const folders = ['0.1.7', '0.1.8', '0.1.9'].map((number) => join(folder, number))
  const [one, , three] = folders.map((path) => loadCopy(t, path, path.slice(-5)))

  const text = 'the lock file /a is open in another copy of leasehold in this process, and …; use Redis'
  const { message, reason } = three.errors.unavailableError(ErrorKind.Unsupported, text, 'k')
  assert.equal(reason, 'unsupported')
  const [first, second, third] = folders.map((path) => `${path.slice(-5)} in ${path}`)
  assert.equal(message, `${text}. This copy is ${third}. The other copies are ${first}, ${second}. ${ADVICE}`)
  const other = one.errors.unavailableError(ErrorKind.Unsupported, 'the server is too old', 'k')
  assert.equal(other.message, 'the server is too old')

  const native = readFileSync(join(ROOT, 'src/store/sqlite/admission.rs'), 'utf8')
  assert.ok(native.includes('"the lock file {} is open in another copy of leasehold in this process, and'))
})
