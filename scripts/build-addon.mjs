// Builds the addon for this machine, and native.cjs, which loads it. `npm install` runs this in a
// checkout.
//
//   node scripts/build-addon.mjs              developer profile: fast to compile, slower to run
//   node scripts/build-addon.mjs --release    as it is published; the benchmarks need it
//   node scripts/build-addon.mjs [...] [other options of `napi build`]

import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import './check-toolchain.mjs'

const cli = createRequire(import.meta.url).resolve('@napi-rs/cli/package.json')
const env = { ...process.env }
// Node can't start a shell script on Windows. An addon that is built there is a little larger and
// slower than the published one.
if (process.platform !== 'win32') env.CARGO = fileURLToPath(new URL('cargo-for-addon.sh', import.meta.url))

const given = process.argv.slice(2)
const profile = given.includes('--release') ? [] : ['--profile', 'developer']

const { status } = spawnSync(
  process.execPath,
  [
    join(dirname(cli), 'dist', 'cli.js'),
    'build',
    '--platform',
    '--js',
    'native.cjs',
    '--dts',
    'native.d.ts',
    ...profile,
    ...given,
  ],
  { env, stdio: 'inherit', cwd: fileURLToPath(new URL('..', import.meta.url)) },
)
process.exitCode = status ?? 1
