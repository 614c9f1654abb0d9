// The libraries that leasehold is compared with. They are no dependency of the package, and installed when they are wanted.

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const HERE = fileURLToPath(new URL('.', import.meta.url))

/** Installs them into bench/node_modules, unless they are there. */
export function haveLibraries() {
  if (existsSync(join(HERE, 'node_modules'))) return
  console.error('installing the libraries to compare with, into bench/node_modules')
  const args = ['ci', '--no-audit', '--no-fund', '--ignore-scripts']
  const { status } = spawnSync('npm', args, { cwd: HERE, stdio: ['ignore', process.stderr, process.stderr] })
  if (status !== 0) throw new Error('npm ci in bench/ failed')
}
