// What `npm test` runs. Needs nothing that runs already; installs a Redis server and Chromium if there is none.
//
//   npm test                          everything
//   npm test -- behaviour worker      only these parts of __test__ (or files)
//   npm test -- --skip-rust           without cargo test
//   npm test -- --quick               types, unit tests, and most of behaviour on memory and SQLite
//   npm run test:long                 long random campaigns instead of short ones
//   npm test -- --test-name-pattern=X what begins with --test goes to node --test
//
// LEASEHOLD_TEST_STORES=memory,sqlite   only these stores
// LEASEHOLD_TEST_SECONDS=60             how long the tests that count turns or break servers run (default 4 to 10; 60 for ticks)
// LEASEHOLD_TEST_REPEAT=50              how often the crashes are repeated (default 5)
// LEASEHOLD_TEST_SEED=1                 repeats their random kills, and the faults of chaos/ (a failing test prints its seed)
// LEASEHOLD_FUZZ_CASES=100000           how many inputs each fuzz target tries
// REDIS_SERVER=/path/to/redis-server    the server to test with
// CHROMIUM=/path/to/chromium            the browser to look at the examples with

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { findChromium, installChromium } from './support/chromium.mjs'
import { panicsIn } from './support/failures.mjs'
import { findRedis, installRedis } from './support/redis-server.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const HERE = join(ROOT, '__test__')
const PARTS = ['behaviour', 'worker', 'http', 'package', 'process', 'browser', 'chaos']
/** The parts that run while no other tests run. */
const ALONE = ['process', 'browser', 'chaos']
/**
 * The files of these parts that mostly wait for grace periods, drains and ttls, and measure
 * nothing. Several of them run at a time.
 */
const WAITING =
  'cli crash detach drain ends fail-fast fake-clock hostile quorum-repair rolling schedule sharing sqlite threads timeouts traces'
    .split(' ')
    .map((name) => `process/${name}`)
/**
 * The files of these parts that break servers, and wait for the reactions of their clients. Two of
 * them run at a time. With three, an election in a cluster once took longer than 20 s.
 */
const BREAKING = [
  'chaos',
  ...'breaker cluster-outage queue-outage quorum-inspect redis-leftovers redis-outage sentinel stalls'
    .split(' ')
    .map((name) => `process/${name}`),
]
/**
 * The files of these parts that wait for the clock for a minute. They run beside the parts that
 * share the machine, if any of those run.
 */
const BESIDE = ['process/ticks.test.mjs']

/** The files of `behaviour` that start servers or take more than a few seconds: --quick omits them. */
const SLOW =
  'adopt-quorum bad-servers channels detach-quorum diagnose drain fences foreign-data forged otel prometheus redis schedule side-keys tls traces'
    .split(' ')
    .map((name) => `behaviour/${name}`)

/** What --long sets, unless the environment does. */
const LONG = {
  LEASEHOLD_TEST_SECONDS: 60,
  LEASEHOLD_TEST_REPEAT: 50,
  LEASEHOLD_SEEDS: 100_000,
  LEASEHOLD_FUZZ_CASES: 100_000,
}
if (process.argv.includes('--long')) {
  for (const [name, value] of Object.entries(LONG)) process.env[name] ??= String(value)
}

/**
 * The longest time that a test may take, in ms. On Node 20 it also limits a whole file, whose tests
 * of LEASEHOLD_TEST_SECONDS may run one after the other.
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

/** The test files at or below `path`. Node 20 takes no patterns. */
function testsBelow(path) {
  if (!existsSync(path)) return []
  if (statSync(path).isFile()) return [path]
  return readdirSync(path, { recursive: true })
    .filter((name) => name.endsWith('.test.mjs'))
    .sort()
    .map((name) => join(path, name))
}

/** What a word of the command line names: a part, a file, or the beginning of a file's name. */
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
// What a developer has set for their own use must not become the tests' store, or their colours our assertions.
delete env.LEASEHOLD_URL
delete env.REDIS_URL
delete env.NODE_ENV

/** Returns the names of the test programs in tests/, for cargo's --test. */
function rustTests() {
  const entries = readdirSync(join(ROOT, 'tests'), { withFileTypes: true })
  const isProgram = (entry) =>
    entry.isFile() ? entry.name.endsWith('.rs') : existsSync(join(ROOT, 'tests', entry.name, 'main.rs'))
  return entries.filter(isProgram).map(({ name }) => name.replace(/\.rs$/, ''))
}

const results = []
/** The folder where each step of Node notes the tests that failed. */
const notes = mkdtempSync(join(tmpdir(), 'leasehold-failures-'))
process.on('exit', () => rmSync(notes, { recursive: true, force: true }))

/**
 * Runs a command and shows its output at once. If the command runs `beside` another one, shows its
 * output when both have ended. `failures` reads from the output what failed.
 */
async function step(what, command, args, { beside, failures = () => '' } = {}) {
  const heading = `\n── ${what}`
  if (!beside) console.log(heading)
  const start = performance.now()
  const piped = beside || command === 'cargo'
  const child = spawn(command, args, { cwd: ROOT, env, stdio: piped ? ['ignore', 'pipe', 'pipe'] : 'inherit' })
  let said = ''
  const hear = (text) => {
    said += text
    if (!beside) process.stdout.write(text)
  }
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', hear)
  const [status, signal] = await once(child, 'close').catch((error) => [error.message])
  const seconds = (performance.now() - start) / 1_000
  if (typeof status === 'string') console.error(status)
  if (beside) {
    await beside
    console.log(heading)
    process.stdout.write(said)
  }
  results.push({ what, ok: status === 0, seconds, signal, failures: failures(said) })
}

const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
const whole = chosen.length === 0

if (quick && !skipRust) {
  const cargo = ['test', '--quiet', '--features', 'mutants', '--lib', '--test', 'store_contract']
  const words = ['--', '--skip', 'redis', '--skip', 'cluster', '--skip', 'fuzz']
  await step('Rust: unit tests and the contract of stores', 'cargo', [...cargo, ...words], { failures: panicsIn })
}
if (whole && !skipRust) {
  // The tests mostly wait for clocks and servers.
  env.RUST_TEST_THREADS ??= '6'
  // Build with the deliberate mistakes, which are made only where a test asks for them: to build
  // everything twice takes minutes.
  const cargo = ['test', '--quiet', '--features', 'mutants']
  const optimized = [...cargo, '--profile', 'developer', '--test', 'simulation']
  const failures = panicsIn
  // The simulation keeps a processor busy while the other tests wait for servers.
  const others = rustTests().filter((name) => name !== 'simulation')
  const units = ['--lib', ...others.flatMap((name) => ['--test', name])]
  await step('Rust: build the simulation', 'cargo', [...optimized, '--no-run'], { failures })
  await step('Rust: build all other tests', 'cargo', [...cargo, ...units, '--no-run'], { failures })
  const simulation = step('Rust: simulation', 'cargo', optimized, { failures })
  const rest = step('Rust: all other tests', 'cargo', [...cargo, ...units], { beside: simulation, failures })
  await Promise.all([simulation, rest])
}
if (whole || chosen.includes('types')) {
  for (const name of existsSync(join(HERE, 'types'))
    ? readdirSync(join(HERE, 'types')).filter((n) => /^tsconfig.*\.json$/.test(n))
    : []) {
    await step(`types: ${name}`, process.execPath, [tsc, '--noEmit', '-p', join(HERE, 'types', name)])
  }
}
/** Runs test files, so many of them at a time. */
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
// cores, their servers and children run beside them. All other tests mostly wait.
const together = files.filter((file) => !isIn(ALONE)(file))
const beside = together.length > 0 ? files.filter(isIn(BESIDE)) : []
const waiting = files.filter(isIn(WAITING))
const breaking = files.filter(isIn(BREAKING))
const alone = files.filter((file) => isIn(ALONE)(file) && ![...beside, ...waiting, ...breaking].includes(file))
console.log(`\nRedis: ${redis}`)
// On two cores, more than three at a time would only make each other late.
const shared = stepOfNode('tests that share the machine', together, 3)
await Promise.all([shared, stepOfNode('tests that wait beside them', beside, 1, { beside: shared })])
// They leave more than half of two cores idle with three at a time.
await stepOfNode('tests that mostly wait', waiting, 5)
await stepOfNode('tests that break servers', breaking, 2)
await stepOfNode('tests that run alone', alone, 1)

console.log('\n── summary')
for (const { what, ok, seconds, signal, failures } of results) {
  console.log(`${ok ? 'passed' : 'FAILED'}  ${what}  (${seconds.toFixed(1)} s${signal ? `, ${signal}` : ''})`)
  if (!ok) console.log(failures)
}
process.exitCode = results.every(({ ok }) => ok) ? 0 : 1
