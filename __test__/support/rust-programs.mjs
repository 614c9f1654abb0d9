// The programs of the Rust tests: how cargo builds them, and their paths. run.mjs starts them
// itself, several at a time, because cargo would start one after the other.

import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const TESTS = fileURLToPath(new URL('../../tests', import.meta.url))
/**
 * Builds with the deliberate mistakes, which a test has to turn on. Another build without them
 * would take minutes.
 */
const BUILD = ['test', '--no-run', '--message-format=json-render-diagnostics', '--features', 'mutants']
/** Only the simulation needs our own code optimized, which takes longer to compile. */
const NOT_OPTIMIZED = ['--config', 'profile.developer.package.leasehold.opt-level=0']

/** The arguments of cargo that build the simulation, without those of scripts/cargo.mjs. */
export const SIMULATION = [...BUILD, '--test', 'simulation']

/** Returns the arguments of cargo that build the unit tests and these programs of tests/. */
export const unitsAnd = (names) => [
  ...[...BUILD, ...NOT_OPTIMIZED, '--lib'],
  ...names.flatMap((name) => ['--test', name]),
]

/** Returns the names of the test programs in tests/ other than the simulation. */
export function integrationTests() {
  const entries = readdirSync(TESTS, { withFileTypes: true })
  const isProgram = (entry) =>
    entry.isFile() ? entry.name.endsWith('.rs') : existsSync(join(TESTS, entry.name, 'main.rs'))
  return entries
    .filter(isProgram)
    .map(({ name }) => name.replace(/\.rs$/, ''))
    .filter((name) => name !== 'simulation')
}

/** Returns the programs that cargo has built: { name, path } of each. */
export function programsIn(output) {
  const messages = output.split('\n').filter((line) => line.startsWith('{'))
  return messages
    .map((line) => JSON.parse(line))
    .filter(({ reason, executable, profile }) => reason === 'compiler-artifact' && executable && profile.test)
    .map(({ executable, target }) => ({ name: target.kind.includes('test') ? target.name : 'units', path: executable }))
}
