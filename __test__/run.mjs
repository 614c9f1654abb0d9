// Runs the tests for `npm test`. Nothing has to run before. Installs a Redis server and Chromium if
// there is none.
//
//   npm test                          everything
//   npm test -- behaviour worker      only these parts of __test__ (or files), and no Rust tests
//   npm test -- --skip-rust           without cargo test
//   npm test -- --quick               types, unit tests, and most of behaviour on memory and SQLite
//   npm run test:long                 long random campaigns instead of short ones
//   npm test -- --test-name-pattern=X options that begin with --test go to node --test
//
// LEASEHOLD_TEST_STORES=memory,sqlite   only these stores
// LEASEHOLD_TEST_SECONDS=60             how long tests that count turns or break servers run
//                                       (default 1 to 4; 60 for ticks)
// LEASEHOLD_TEST_REPEAT=50              how often the crashes are repeated (default 5)
// LEASEHOLD_TEST_SEED=1                 repeats their random kills, and the faults of chaos/
//                                       (a failing test prints its seed)
// LEASEHOLD_TEST_LONG=1                 runs tests of processes on more stores, and chaos/soak with
//                                       more leases
// LEASEHOLD_FUZZ_CASES=100000           how many inputs each fuzz target tries
// REDIS_SERVER=/path/to/redis-server    the server to test with
// CHROMIUM=/path/to/chromium            the browser to test the examples and the site with

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { constants, setPriority, tmpdir } from 'node:os'
import { join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cargoCommand } from '../scripts/cargo.mjs'
import { findChromium, installChromium } from './support/chromium.mjs'
import { panicsIn } from './support/failures.mjs'
import { findRedis, installRedis } from './support/redis-server.mjs'
import { integrationTests, programsIn, SIMULATION, unitsAnd } from './support/rust-programs.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const HERE = join(ROOT, '__test__')
const PARTS = ['behaviour', 'worker', 'http', 'package', 'process', 'browser', 'chaos']
/** The parts that run while no other tests run. */
const ALONE = ['process', 'browser', 'chaos']
/**
 * The files of these parts that mostly wait for grace periods, drains and ttls, and measure
 * nothing. Several of them run at a time.
 */
const WAITING = [
  'browser',
  ...'cli crash detach drain ends fail-fast fake-clock guard-faults guard. hostile quorum-repair rolling schedule sharing sqlite threads timeouts traces'
    .split(' ')
    .map((name) => `process/${name}`),
]
/**
 * The files of these parts that break servers, and wait for the reactions of their clients. Two of
 * them run at a time. With three at a time on a busy machine, locks were out of service for too
 * long.
 */
const BREAKING = [
  'chaos',
  ...'breaker cluster-outage queue-outage quorum-inspect redis-leftovers redis-outage sentinel stalls'
    .split(' ')
    .map((name) => `process/${name}`),
]
/**
 * The files of these parts that wait for the clock for a minute. They run at the same time as the
 * parts that share the machine, if any of those run.
 */
const BESIDE = ['process/ticks.test.mjs']

/**
 * The files of `behaviour` that start servers or take more than a few seconds: --quick omits them.
 */
const SLOW =
  'adopt-quorum bad-servers channels detach-quorum diagnose drain fences foreign-data forged otel prometheus redis schedule side-keys tls traces'
    .split(' ')
    .map((name) => `behaviour/${name}`)

/** The variables that --long sets, unless the environment sets them. */
const LONG = {
  LEASEHOLD_TEST_LONG: 1,
  LEASEHOLD_TEST_SECONDS: 60,
  LEASEHOLD_TEST_REPEAT: 50,
  LEASEHOLD_SEEDS: 100_000,
  LEASEHOLD_FUZZ_CASES: 100_000,
}
if (process.argv.includes('--long')) {
  for (const [name, value] of Object.entries(LONG)) process.env[name] ??= String(value)
}

/**
 * How long a test may take at most, in ms. On Node 20, it also limits a whole file, whose tests of
 * LEASEHOLD_TEST_SECONDS may run one after the other.
 */
const MOST_MS = 300_000 + Number(process.env.LEASEHOLD_TEST_SECONDS ?? 0) * 20_000

const given = process.argv.slice(2)
const forNode = given.filter((word) => word.startsWith('--test'))
const [skipRust, quick] = ['--skip-rust', '--quick'].map((word) => given.includes(word))
const named = given.filter((word) => !word.startsWith('--'))
const chosen = quick && named.length === 0 ? ['types', 'behaviour'] : named
const unknown = given.filter(
  (word) => word.startsWith('--') && !word.startsWith('--test') && !['--skip-rust', '--quick', '--long'].includes(word),
)
if (unknown.length) fail(`unknown option ${unknown.join(' ')}`)

function fail(message) {
  console.error(message)
  process.exit(1)
}

/** Returns the test files at or below `path`. Node 20 takes no patterns. */
function testsBelow(path) {
  if (!existsSync(path)) return []
  if (statSync(path).isFile()) return [path]
  return readdirSync(path, { recursive: true })
    .filter((name) => name.endsWith('.test.mjs'))
    .sort()
    .map((name) => join(path, name))
}

/**
 * Returns the test files for a word of the command line: a part, a file, or a piece of the path of
 * a file.
 */
function testsNamed(word) {
  const found = [join(HERE, word), resolve(word)].flatMap(testsBelow)
  if (found.length) return [...new Set(found)]
  return testsBelow(HERE).filter((file) => relative(HERE, file).includes(word))
}

const isIn = (names) => (file) => names.some((name) => relative(HERE, file).replaceAll(sep, '/').startsWith(name))
const files = chosen.length
  ? [...new Set(chosen.flatMap(testsNamed))].filter((file) => !quick || !isIn(SLOW)(file))
  : PARTS.flatMap((part) => testsBelow(join(HERE, part)))
if (!files.length && !chosen.includes('types')) {
  fail(`no test is called ${chosen.join(' ')}; the parts are types, ${PARTS.join(', ')}`)
}

if (!existsSync(join(ROOT, 'native.cjs')) || !existsSync(join(ROOT, 'dist', 'index.js'))) {
  fail('leasehold is not built: run `npm install` or `npm run build` first')
}

const redis = findRedis() ?? installRedis()
if (!redis) {
  fail(
    'no redis-server was found, and it could not be installed from here (that needs root, sudo without a password, or brew).\n' +
      'Install Redis 6.2 or later, or name its program in REDIS_SERVER.',
  )
}

const env = { ...process.env, REDIS_SERVER: redis }
if (quick) env.LEASEHOLD_TEST_STORES ??= 'memory,sqlite'
if (files.some((file) => relative(HERE, file).startsWith('browser'))) {
  const chromium = findChromium() ?? installChromium()
  if (!chromium) {
    fail(
      'no Chromium was found, and it could not be installed from here (that needs root, sudo without a password, or brew).\n' +
        'Install one, or name its program in CHROMIUM.',
    )
  }
  env.CHROMIUM = chromium
}
// Variables that developers have set for their own use must not change the tests' store, or the
// colors in the output.
delete env.LEASEHOLD_URL
delete env.REDIS_URL
delete env.NODE_ENV
// Node 20 reads these certificates at each start, which then takes twice as long, and the tests
// start Node often. So only npm gets the certificates (support/programs.mjs).
env.LEASEHOLD_TEST_CA_CERTS ??= env.NODE_EXTRA_CA_CERTS
delete env.NODE_EXTRA_CA_CERTS

const results = []
/** In this folder, each run of Node notes the tests that failed. */
const notes = mkdtempSync(join(tmpdir(), 'leasehold-failures-'))
process.on('exit', () => rmSync(notes, { recursive: true, force: true }))

/**
 * Runs a command and shows its output at once. If the command runs `beside` another one, shows its
 * output when both have ended. If it is `idle`, it only gets the processor time that all others
 * leave. `failures` returns the failures in the output. Returns the standard output, which is not
 * shown if the command is `silent`.
 */
async function step(what, command, args, { beside, silent, idle, piped = beside, failures = () => '' } = {}) {
  const heading = `\n── ${what}`
  if (!beside) console.log(heading)
  const start = performance.now()
  const child = spawn(command, args, { cwd: ROOT, env, stdio: piped ? ['ignore', 'pipe', 'pipe'] : 'inherit' })
  if (idle) setPriority(child.pid, constants.priority.PRIORITY_LOW)
  const said = { stdout: '', stderr: '' }
  let all = ''
  for (const name of Object.keys(said)) {
    child[name]?.setEncoding('utf8').on('data', (text) => {
      said[name] += text
      if (silent && name === 'stdout') return
      all += text
      if (!beside) process[name].write(text)
    })
  }
  const [status, signal] = await once(child, 'close').catch((error) => [error.message])
  const seconds = (performance.now() - start) / 1_000
  if (typeof status === 'string') console.error(status)
  if (beside) {
    await beside
    console.log(heading)
    process.stdout.write(all)
  }
  results.push({ what, ok: status === 0, seconds, signal, failures: failures(all) })
  return said.stdout
}

const tsc = join(ROOT, 'node_modules', 'typescript-native', 'bin', 'tsc')
const whole = chosen.length === 0

const build = async (what, words) => {
  const { command, args } = cargoCommand(words)
  return programsIn(await step(`Rust: build ${what}`, command, args, { piped: true, silent: true, failures: panicsIn }))
}
const runProgram = ({ name, path }, words, options) =>
  step(`Rust: ${name}`, path, ['--quiet', ...words], { piped: true, failures: panicsIn, ...options })

if (quick && !skipRust) {
  const programs = await build('the unit tests and the contract of stores', unitsAnd(['store_contract']))
  const words = ['--skip', 'redis', '--skip', 'cluster', '--skip', 'fuzz']
  for (const program of programs) await runProgram(program, words)
}
/** Compiles the programs of __test__/types, one after the other. */
async function checkTypes() {
  const names = readdirSync(join(HERE, 'types')).filter((name) => /^tsconfig.*\.json$/.test(name))
  for (const name of names) {
    const words = [tsc, '--noEmit', '-p', join(HERE, 'types', name)]
    await step(`types: ${name}`, process.execPath, words, { beside: Promise.resolve() })
  }
}
// The compilers of Rust leave a processor idle at times.
const typesChecked = whole || chosen.includes('types') ? checkTypes() : undefined
/** Resolves when the simulation has ended. It runs while the other tests wait. */
let simulation
/** Resolves when the other tests have ended. */
let othersEnded
/** Resolves when the other programs of the Rust tests have ended. */
let rustEnded
if (whole && !skipRust) {
  // The tests mostly wait for clocks and servers.
  env.RUST_TEST_THREADS ??= '6'
  const optimized = await build('the simulation', SIMULATION)
  const beside = new Promise((resolve) => {
    othersEnded = resolve
  })
  simulation = Promise.all(optimized.map((program) => runProgram(program, [], { idle: true, beside })))
  const others = await build('all other tests', unitsAnd(integrationTests()))
  const lane = async () => {
    for (let program = others.shift(); program; program = others.shift()) {
      await runProgram(program, [], { beside: Promise.resolve() })
    }
  }
  const lanes = [lane(), lane(), lane()]
  rustEnded = Promise.all(lanes)
  // The last programs mostly wait, so Node's tests begin when one of the lanes has ended.
  await Promise.race(lanes)
}
await typesChecked
/** Runs test files, `atOnce` at a time. */
async function stepOfNode(what, files, atOnce, options) {
  if (files.length === 0) return
  const words = [`--test-concurrency=${atOnce}`, `--test-timeout=${MOST_MS}`, ...forNode]
  const note = join(notes, what)
  const reporters = { spec: 'stdout', [join(HERE, 'support', 'failures.mjs')]: note }
  for (const [reporter, destination] of Object.entries(reporters)) {
    words.push(`--test-reporter=${reporter}`, `--test-reporter-destination=${destination}`)
  }
  const failures = () => (existsSync(note) ? readFileSync(note, 'utf8') : '')
  const count = files.length === 1 ? '1 file' : `${files.length} files`
  const title = `Node ${process.version}: ${count} of ${what}`
  await step(title, process.execPath, ['--test', ...words, ...files], { ...options, failures })
}

// Tests that measure time, count turns or break servers run one file at a time: on a machine of two
// cores, their servers and children run at the same time. All other tests mostly wait.
const together = files.filter((file) => !isIn(ALONE)(file))
const beside = together.length > 0 ? files.filter(isIn(BESIDE)) : []
const waiting = files.filter(isIn(WAITING))
const breaking = files.filter(isIn(BREAKING))
const alone = files.filter((file) => isIn(ALONE)(file) && ![...beside, ...waiting, ...breaking].includes(file))
console.log(`\nRedis: ${redis}`)
// These tests use less than a fifth of a processor each.
const shared = stepOfNode('tests that share the machine', together, 6)
await Promise.all([shared, stepOfNode('tests that wait at the same time', beside, 1, { beside: shared }), rustEnded])
// Some of these files run several of their tests at a time.
await stepOfNode('tests that mostly wait', waiting, 4)
await stepOfNode('tests that break servers', breaking, 2)
await stepOfNode('tests that run alone', alone, 1)

othersEnded?.()
await simulation

console.log('\n── summary')
for (const { what, ok, seconds, signal, failures } of results) {
  console.log(`${ok ? 'passed' : 'FAILED'}  ${what}  (${seconds.toFixed(1)} s${signal ? `, ${signal}` : ''})`)
  if (!ok) console.log(failures)
}
process.exitCode = results.every(({ ok }) => ok) ? 0 : 1
