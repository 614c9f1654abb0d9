// Checks the error of an entry that needs a package that is not installed.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Makes a project with leasehold and nothing else. Returns its folder. */
function installed(t) {
  const folder = temporaryFolder(t)
  for (const name of ['package.json', 'native.cjs', 'dist']) {
    cpSync(join(ROOT, name), join(folder, 'node_modules', 'leasehold', name), { recursive: true })
  }
  return folder
}

/** Returns the error that `load` throws in the project. */
function errorOf(folder, load) {
  const script = `
    (async () => ${load})().then(() => console.log('{}'), ({ message, code, cause }) =>
      console.log(JSON.stringify({ message, code, cause: { code: cause?.code, message: cause?.message } })))`
  return JSON.parse(execFileSync(process.execPath, ['-e', script], { cwd: folder, encoding: 'utf8' }))
}

describe('without an optional peer', () => {
  for (const [entry, name] of [
    ['leasehold/prometheus', 'prom-client'],
    ['leasehold/otel', '@opentelemetry/api'],
  ]) {
    test(`${entry}: the error says what needs ${name}, and how to install it`, (t) => {
      const folder = installed(t)
      for (const load of [`require('${entry}')`, `import('${entry}')`]) {
        const { message, code, cause } = errorOf(folder, load)
        assert.equal(
          message,
          `${entry} needs the package ${name}, which is not installed here: run \`npm install ${name}\``,
        )
        assert.deepEqual([code, cause.code], ['MODULE_NOT_FOUND', 'MODULE_NOT_FOUND'])
        assert.match(cause.message, /^Cannot find module/)
      }
    })

    test(`${entry}: if ${name} is installed and broken, its own error is thrown`, (t) => {
      const folder = installed(t)
      const peer = join(folder, 'node_modules', name)
      mkdirSync(peer, { recursive: true })
      writeFileSync(join(peer, 'index.js'), "require('another-package')")
      assert.match(errorOf(folder, `require('${entry}')`).message, /^Cannot find module 'another-package'/)
      writeFileSync(join(peer, 'index.js'), "throw new Error('it is broken')")
      assert.equal(errorOf(folder, `require('${entry}')`).message, 'it is broken')
    })
  }

  test('the library itself needs no peer', (t) => {
    assert.deepEqual(errorOf(installed(t), "require('leasehold')"), {})
  })
})
