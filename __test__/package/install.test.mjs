// The package as users get it: packed, published to a registry on loopback, installed by npm into
// fresh projects without install scripts, and used. Express, Remix and the types of Node come from
// the registry that npm is configured for.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { ownPlatform, platforms } from '../../scripts/platforms.mjs'
import { npmEnv } from '../support/programs.mjs'
import { startRegistry } from '../support/registry.mjs'
import { temporaryFolder } from '../support/servers.mjs'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FIXTURES = fileURLToPath(new URL('install', import.meta.url))
const { IS_OPTIMIZED } = createRequire(import.meta.url)('../../native.cjs')
/** The largest size of a published addon. */
const MOST_BYTES = 6_000_000
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const own = ownPlatform()

/** Returns dependencies with the versions that the other tests use. */
const asHere = (...names) => Object.fromEntries(names.map((name) => [name, manifest.devDependencies[name]]))

/** The projects. A program is a folder of install/, and becomes a folder of its project. */
const PROJECTS = {
  bare: { programs: ['commonjs', 'command', 'esmodule'], dependencies: {} },
  typed: {
    programs: ['typescript', 'express'],
    dependencies: asHere(
      '@opentelemetry/api',
      '@opentelemetry/sdk-trace-base',
      '@types/express',
      '@types/node',
      'express',
      'prom-client',
    ),
  },
  // The Remix adapter needs Express 4.
  remix: {
    programs: ['remix'],
    dependencies: { '@remix-run/express': '2.17.5', '@remix-run/node': '2.17.5', express: '4.21.2' },
  },
}

const env = { ...npmEnv(), NODE_TEST_CONTEXT: undefined, npm_config_ignore_scripts: 'true', npm_config_yes: 'false' }
// `npm test` passes its settings to its children, where they would override a project's .npmrc.
for (const name of Object.keys(env)) if (/^npm_config_(registry|.*prefix|global)$/i.test(name)) delete env[name]

const start = promisify(execFile)
/** Runs a command to its end. Resolves with its output and any exit code. */
async function ended(command, args, cwd, more) {
  const options = { cwd, env: { ...env, ...more }, timeout: 120_000, maxBuffer: 1e7 }
  return start(command, args, options).then(
    (output) => ({ code: 0, ...output }),
    ({ code, signal, message, stdout, stderr }) => ({ code: signal ?? code ?? message, stdout, stderr }),
  )
}
async function run(command, args, cwd) {
  const { code, stdout, stderr } = await ended(command, args, cwd)
  assert.equal(code, 0, `${command} ${args.join(' ')} in ${cwd}: ended with ${code}\n${stdout}\n${stderr}`)
  return stdout
}
const node = (args, cwd) => run(process.execPath, args, cwd)
const tool = (path) => join(ROOT, 'node_modules', ...path.split('/'))

describe('installed from a registry', { concurrency: 2, timeout: 280_000 }, () => {
  const endings = []
  let registry
  let folder
  let packed

  /** Makes a project folder whose npm uses the registry of the test. */
  function project(name, dependencies = {}) {
    const path = join(folder, name)
    mkdirSync(path, { recursive: true })
    const { host } = new URL(registry.url)
    writeFileSync(join(path, '.npmrc'), `registry=${registry.url}/\n//${host}/:_authToken=any\n`)
    writeFileSync(join(path, 'package.json'), JSON.stringify({ name, private: true, dependencies }))
    return path
  }

  /** Makes one of the projects, and installs its dependencies. Returns its folder. */
  async function installProject(name) {
    const { programs, dependencies } = PROJECTS[name]
    const path = project(name, { leasehold: manifest.version, ...dependencies })
    for (const program of programs) {
      cpSync(join(FIXTURES, program), join(path, program), { recursive: true })
      cpSync(join(FIXTURES, 'exercise.cjs'), join(path, program, 'exercise.cjs'))
    }
    await run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'], path)
    return path
  }

  const projects = new Map()
  /** Returns the folder of a program, after the dependencies of its project are installed. */
  async function installed(program) {
    const name = Object.keys(PROJECTS).find((each) => PROJECTS[each].programs.includes(program))
    if (!projects.has(name)) projects.set(name, installProject(name))
    return join(await projects.get(name), program)
  }

  before(async () => {
    const t = { after: (ending) => endings.push(ending) }
    assert.ok(own, `no package is published for ${process.platform} ${process.arch}`)
    folder = temporaryFolder(t)
    const upstream = (await run('npm', ['config', 'get', 'registry'], ROOT)).trim()
    registry = await startRegistry(t, { upstream, ours: manifest.name })
    const lines = await node(['scripts/pack.mjs', '--to', join(folder, 'packages')], ROOT)
    packed = lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))

    const publishing = project('publishing')
    await Promise.all(packed.map(({ file }) => run('npm', ['publish', file], publishing)))
    // npm must not choose the packages of the other platforms, so these have no files.
    const others = platforms.filter(({ name }) => !packed.some((p) => p.name === name))
    for (const { id } of others) registry.add(JSON.parse(readFileSync(join(ROOT, 'npm', id, 'package.json'), 'utf8')))
    assert.deepEqual(registry.names().sort(), [manifest.name, ...platforms.map(({ name }) => name)].sort())
  })
  after(async () => {
    for (const ending of endings.reverse()) await ending()
  })

  test('a CommonJS project works, with the addon of this platform alone', async () => {
    const path = await installed('commonjs')
    const names = readdirSync(join(path, '..', 'node_modules')).filter((name) => !name.startsWith('.'))
    assert.deepEqual(names.sort(), ['croner', 'leasehold', own.name].sort(), 'the package depends on nothing else')
    assert.equal(await node(['main.cjs'], path), 'exercised\n')
  })

  test('a project with ES modules works', async () => {
    assert.equal(await node(['main.mjs'], await installed('esmodule')), 'exercised\n')
  })

  test('a strict TypeScript project compiles with `nodenext` and `bundler` resolution, and works', async () => {
    const path = await installed('typescript')
    await node([tool('typescript-native/bin/tsc'), '-p', 'tsconfig.bundler.json'], path)
    await node([tool('typescript-native/bin/tsc'), '-p', 'tsconfig.nodenext.json'], path)
    assert.equal(await node(['out/main.js'], path), 'exercised\n')
  })

  test('an Express 5 server works', async () => {
    assert.equal(await node(['main.mjs'], await installed('express')), 'exercised\n')
  })

  test('a Remix app on the Express adapter works', async () => {
    assert.equal(await node(['main.mjs'], await installed('remix')), 'exercised\n')
  })

  test('the command runs a program under the lock with a growing fence, and exits with its code', async () => {
    const path = await installed('command')
    const npx = (...words) =>
      ended('npx', ['--no-install', 'leasehold', ...words], path, { LEASEHOLD_URL: `sqlite:${join(path, 'locks.db')}` })
    assert.equal((await npx('--version')).stdout, `${manifest.version}\n`)
    const fences = []
    for (let turn = 0; turn < 2; turn++) {
      const { code, stdout, stderr } = await npx('run', 'nightly', '--', process.execPath, 'job.cjs')
      assert.equal(code, 7, stderr)
      const { key, fence, rival } = JSON.parse(stdout)
      assert.deepEqual({ key, rival }, { key: 'nightly', rival: 75 }, 'no other process gets the lock')
      fences.push(Number(fence))
    }
    assert.ok(0 < fences[0] && fences[0] < fences[1], `fences ${fences}`)
    const { code, stdout } = await npx('inspect', 'nightly', '--json')
    assert.deepEqual([code, JSON.parse(stdout)], [1, { key: 'nightly', held: false }])
  })

  test('the published packages have no scripts, and no settings that only a checkout needs', async () => {
    const path = project('contents')
    for (const { name, file } of packed) {
      await run('tar', ['-xzf', file, '-C', path], path)
      const { scripts, devDependencies, napi } = JSON.parse(readFileSync(join(path, 'package', 'package.json'), 'utf8'))
      assert.deepEqual(
        { scripts, devDependencies, napi },
        { scripts: undefined, devDependencies: undefined, napi: undefined },
        name,
      )
    }
    // The root package was unpacked last, over the package of its platform.
    const { optionalDependencies } = JSON.parse(readFileSync(join(path, 'package', 'package.json'), 'utf8'))
    assert.deepEqual(optionalDependencies, Object.fromEntries(platforms.map(({ name }) => [name, manifest.version])))
  })

  test('the packages are small', async (t) => {
    for (const { name, size, unpackedSize } of packed)
      t.diagnostic(`${name}: ${size} bytes packed, ${unpackedSize} unpacked`)
    const path = project('size')
    await run('tar', ['-xzf', packed.find(({ name }) => name === own.name).file, '-C', path], path)
    const { size } = statSync(join(path, 'package', own.binary))
    // An addon of the developer profile is larger. The nightly workflow checks the published size.
    const limit = IS_OPTIMIZED ? MOST_BYTES : 2 * MOST_BYTES
    assert.ok(size < limit, `the addon has ${size} bytes`)
    const { size: rootSize } = packed.at(-1)
    assert.ok(rootSize < 200_000, `the root has ${rootSize} bytes`)
    const [, documented] = /root package has (\d+) kB packed/.exec(
      readFileSync(join(ROOT, 'docs', 'platforms.md'), 'utf8'),
    )
    assert.ok(
      Math.abs(rootSize / 1_000 - documented) < 4,
      `docs/platforms.md says ${documented} kB, and it has ${rootSize} bytes`,
    )
  })

  test('publint finds no fault', async () => {
    const path = project('publint')
    await run('tar', ['-xzf', packed.at(-1).file, '-C', path], path)
    await node([tool('publint/src/cli.js'), 'run', '--strict', '--pack', 'false', 'package'], path)
  })

  test('the types are right for every way of resolution', async () => {
    // This includes the resolution of node10, which ignores `exports`.
    await node([tool('@arethetypeswrong/cli/dist/index.js'), '--profile', 'strict', packed.at(-1).file], folder)
  })

  test('npm/ matches package.json', () => node(['scripts/platforms.mjs', '--check'], ROOT))
})
