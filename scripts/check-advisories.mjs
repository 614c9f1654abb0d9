// Asks for known vulnerabilities in what the package is built from: `npm audit` for what users install
// with it, `cargo audit` for the crates in the addon. Fails if there are any. Where a database can't be
// reached, or cargo-audit is not installed, says so and passes: a machine without the internet has to
// be able to build.

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** The longest time to wait for a database, in ms. */
const TIMEOUT = 120_000

const CHECKS = [
  {
    name: 'npm audit',
    command: ['npm', 'audit', '--omit=dev', '--audit-level=moderate', '--json'],
    // Without an answer, npm prints an object with `error`.
    hasAnswered: ({ metadata }) => metadata?.vulnerabilities !== undefined,
    found: ({ vulnerabilities }) =>
      Object.values(vulnerabilities)
        .filter(({ severity }) => !['info', 'low'].includes(severity))
        .map(({ name, severity, range }) => `${name} ${range}: ${severity}`),
  },
  {
    name: 'cargo audit',
    command: ['cargo', 'audit', '--json'],
    hasAnswered: ({ vulnerabilities }) => Array.isArray(vulnerabilities?.list),
    found: ({ vulnerabilities: { list } }) =>
      list.map(({ advisory, package: crate }) => `${crate.name} ${crate.version}: ${advisory.id} ${advisory.title}`),
  },
]

for (const { name, command, hasAnswered, found } of CHECKS) {
  const [program, ...args] = command
  const { stdout, stderr, error } = spawnSync(program, args, { cwd: ROOT, encoding: 'utf8', timeout: TIMEOUT })
  const report = parse(stdout)
  if (report === undefined || !hasAnswered(report)) {
    const why = error?.message ?? report?.message ?? (stderr.trim().split('\n').at(-1) || 'no answer')
    console.log(`${name}: not checked (${why})`)
    continue
  }
  const problems = found(report)
  console.log(`${name}: ${problems.length === 0 ? 'nothing is known' : problems.join('\n  ')}`)
  if (problems.length > 0) process.exitCode = 1
}

function parse(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
