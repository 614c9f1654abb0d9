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
import { errorsIn, panicsIn } from './support/failures.mjs'
import { findRedis, installRedis } from './support/redis-server.mjs'
import { integrationTests, programsIn, SIMULATION, unitsAnd } from './support/rust-programs.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const HERE = join(ROOT, '__test__')
const PARTS = ['behaviour', 'worker', 'http', 'package', 'process', 'browser', 'chaos']
/** The parts that do not run at the same time as other parts. The lists below name exceptions. */
const ALONE = ['process', 'browser', 'chaos']
/**
 * The files of these parts that mostly wait for grace periods, drains and ttls, and measure
 * nothing. Several of them run at a time.
 */
const WAITING = [
  'browser',
  ...['checks', 'relay', 'topologies'].map((name) => `chaos/${name}`),
  ...'cli crash detach drain ends fail-fast fake-clock guard-faults guard. hostile late-answers lost-prolongation once queue-outage quorum-repair rolling schedule sharing signals soak sqlite suspicious threads timeouts traces wild-native'
    .split(' ')
    .map((name) => `process/${name}`),
]
/**
 * The files of these parts that break servers, and wait for the reactions of their clients. Two of
 * them run at a time. With three at a time on a busy machine, locks were out of service for too
 * long.
 */
const BREAKING = [
  ...['cluster', 'quorum', 'sentinel', 'single', 'soak'].map((name) => `chaos/${name}`),
  ...'breaker cluster-outage quorum-inspect redis-leftovers redis-outage sentinel stalls'
    .split(' ')
    .map((name) => `process/${name}`),
]
/**
 * The files of these parts that mostly wait, and use less than a tenth of a processor each. Two of
 * them run at the same time as the tests that break servers, which use a third of two processors.
 */
const IDLE =
  'cli-terminal detach drain ends-pool fail-fast fake-clock guard. once queue-outage quorum-repair schedule timeouts-silent'
    .split(' ')
    .map((name) => `process/${name}`)
/**
 * The files that take more than a minute, mostly waiting for the clock or for npm. They start
 * first, and run at the same time as the parts that share the machine, if any of those run. `node
 * --test` sorts its files, so it would start one of these late, and then wait for it alone.
 */
const LONG_FILES = ['process/ticks.test.mjs', 'package/service.test.mjs']

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
 * output when both have ended. With a low `priority`, it mostly gets the processor time that others
 * leave. `failures` returns the failures in the output. Returns the standard output, which is not
 * shown if the command is `silent`.
 */
async function step(what, command, args, { beside, silent, priority, piped = beside, failures = () => '' } = {}) {
  const heading = `\n── ${what}`
  if (!beside) console.log(heading)
  const start = performance.now()
  const child = spawn(command, args, { cwd: ROOT, env, stdio: piped ? ['ignore', 'pipe', 'pipe'] : 'inherit' })
  if (priority && child.pid) setPriority(child.pid, priority)
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

/** When a step may show its output: at once when it has ended. */
const atOnce = Promise.resolve()
const { PRIORITY_BELOW_NORMAL, PRIORITY_LOW } = constants.priority

/** Builds programs of Rust's tests, while Node's tests mostly wait. Returns them. */
async function build(what, words) {
  const { command, args } = cargoCommand(words)
  const options = { beside: atOnce, priority: PRIORITY_BELOW_NORMAL, silent: true, failures: errorsIn }
  return programsIn(await step(`Rust: build ${what}`, command, args, options))
}
const runProgram = ({ name, path }, words, options) =>
  step(`Rust: ${name}`, path, ['--quiet', ...words], { failures: panicsIn, ...options })

/** Runs programs of Rust's tests, three at a time. They mostly wait for clocks and servers. */
async function runAll(programs, words = []) {
  env.RUST_TEST_THREADS ??= '6'
  const left = [...programs]
  const lane = async () => {
    for (let program = left.shift(); program; program = left.shift()) {
      await runProgram(program, words, { beside: atOnce })
    }
  }
  await Promise.all([lane(), lane(), lane()])
}
/** Compiles the programs of __test__/types, one after the other. */
async function checkTypes() {
  const names = readdirSync(join(HERE, 'types')).filter((name) => /^tsconfig.*\.json$/.test(name))
  for (const name of names) {
    const words = [tsc, '--noEmit', '-p', join(HERE, 'types', name)]
    await step(`types: ${name}`, process.execPath, words, { beside: atOnce })
  }
}
/** Resolves when all tests but the simulation have ended. */
let othersEnded
const ended = new Promise((resolve) => {
  othersEnded = resolve
})
/** Resolves when the simulation has ended. It runs while the other tests wait. */
let simulation
/** Resolves when Rust's tests other than the simulation have ended. */
let rustEnded
if (whole && !skipRust) {
  // The simulation takes longest, so it is built first.
  const optimized = build('the simulation', SIMULATION)
  const options = { beside: ended, priority: PRIORITY_LOW }
  simulation = optimized.then((programs) => Promise.all(programs.map((program) => runProgram(program, [], options))))
  rustEnded = optimized
    .then(() => build('all other tests', unitsAnd(integrationTests())))
    .then((programs) => runAll(programs))
} else if (quick && !skipRust) {
  const words = ['redis', 'cluster', 'tls', 'fuzz'].flatMap((name) => ['--skip', name])
  const programs = build('the unit tests and the contract of stores', unitsAnd(['store_contract']))
  rustEnded = programs.then((built) => runAll(built, words))
}
const typesChecked = whole || chosen.includes('types') ? checkTypes() : undefined
/** Runs test files, `most` at a time. */
async function stepOfNode(what, files, most, options) {
  if (files.length === 0) return
  const words = [`--test-concurrency=${most}`, `--test-timeout=${MOST_MS}`, ...forNode]
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

// Tests that measure time or count turns run one file at a time: on a machine of two cores, their
// servers and children run at the same time. Of the tests that break servers, two files run at a
// time. All others mostly wait.
const sharing = files.filter((file) => !isIn(ALONE)(file))
const isLong = isIn(LONG_FILES)
const long = sharing.every(isLong) ? [] : files.filter(isLong)
const together = sharing.filter((file) => !long.includes(file))
const idle = files.filter(isIn(IDLE))
const waiting = files.filter(isIn(WAITING)).filter((file) => !idle.includes(file))
const breaking = files.filter(isIn(BREAKING))
const alone = files.filter((file) => isIn(ALONE)(file) && ![...long, ...idle, ...waiting, ...breaking].includes(file))
console.log(`\nRedis: ${redis}`)
// These tests use less than a fifth of a processor each.
const shared = stepOfNode('tests that share the machine', together, 6)
const longest = stepOfNode('tests that take more than a minute', long, long.length, { beside: shared })
await Promise.all([shared, longest, typesChecked])
// Some of these files run several of their tests at a time.
await stepOfNode('tests that mostly wait', waiting, 6)
await rustEnded
const broken = stepOfNode('tests that break servers', breaking, 2)
await Promise.all([broken, stepOfNode('tests that mostly wait beside them', idle, 2, { beside: broken })])
await stepOfNode('tests that run alone', alone, 1)

othersEnded()
await simulation

console.log('\n── summary')
for (const { what, ok, seconds, signal, failures } of results) {
  console.log(`${ok ? 'passed' : 'FAILED'}  ${what}  (${seconds.toFixed(1)} s${signal ? `, ${signal}` : ''})`)
  if (!ok) console.log(failures)
}
process.exitCode = results.every(({ ok }) => ok) ? 0 : 1
