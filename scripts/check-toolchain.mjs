// Says what is missing before the build does, in words that name the remedy.

import { spawnSync } from 'node:child_process'

/** As in Cargo.toml, which says why. */
const OLDEST = [1, 89]

function fail(message) {
  console.error(`leasehold can't be built: ${message}`)
  process.exit(1)
}

const { stdout, error } = spawnSync('cargo', ['--version'], { encoding: 'utf8' })
if (error) fail('Rust is missing (no cargo on the PATH). See https://rustup.rs')
const [, major, minor] = /cargo (\d+)\.(\d+)/.exec(stdout) ?? []
if (major !== undefined && (Number(major) - OLDEST[0] || Number(minor) - OLDEST[1]) < 0) {
  fail(`Rust ${major}.${minor} is too old, at least ${OLDEST.join('.')} is needed. \`rustup update\` brings it`)
}
