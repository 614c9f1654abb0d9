// What docs/servers.md shows is what the types allow, and its links lead somewhere.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const guide = readFileSync(join(ROOT, 'docs', 'servers.md'), 'utf8')
/** In the checkout, where `leasehold` is the package itself. */
const FOLDER = join(ROOT, 'target', 'servers-guide')

/** What its examples take for granted. */
const GIVEN = `
declare function charge(order: string | string[] | undefined, options: { fence: number | undefined }): Promise<void>
declare function writeReport(options: { fence: number | undefined }): Promise<string>
declare module '@remix-run/node' {
  interface ActionFunctionArgs {
    request: Request
    params: Record<string, string | undefined>
    context: unknown
  }
}
`

const SETTINGS = {
  compilerOptions: {
    target: 'ES2022',
    lib: ['ES2022', 'ESNext.Disposable'],
    module: 'nodenext',
    types: ['node'],
    strict: true,
    noEmit: true,
  },
}

describe('docs/servers.md', () => {
  test('its examples compile', () => {
    rmSync(FOLDER, { recursive: true, force: true })
    mkdirSync(FOLDER, { recursive: true })
    const examples = [...guide.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code)
    assert.equal(examples.length, 5)
    for (const [i, code] of examples.entries()) writeFileSync(join(FOLDER, `example-${i + 1}.mts`), code)
    writeFileSync(join(FOLDER, 'given.d.ts'), GIVEN)
    writeFileSync(join(FOLDER, 'tsconfig.json'), JSON.stringify(SETTINGS))
    const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
    const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', FOLDER], { encoding: 'utf8' })
    assert.equal(status, 0, stdout)
  })

  test('every link leads to a file', () => {
    for (const [, target] of guide.matchAll(/\]\((.*?)\)/g)) {
      if (target.startsWith('https://')) continue
      const [file] = target.split('#')
      assert.ok(existsSync(join(ROOT, 'docs', file)), target)
    }
  })
})
