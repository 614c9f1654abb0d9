// The libraries that leasehold is compared with. They are no dependency of the package. The
// benchmark installs them when it needs them.

import { spawnSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const HERE = fileURLToPath(new URL('.', import.meta.url))
const MODULES = join(HERE, 'node_modules')

/**
 * Installs the libraries into bench/node_modules, unless they are there. Two processes may do that
 * at the same time.
 */
export function haveLibraries() {
  if (existsSync(MODULES)) return
  console.error('installing the libraries to compare with, into bench/node_modules')
  // This folder is on the same file system, so that the modules appear at once and complete.
  const folder = mkdtempSync(join(HERE, '.installing-'))
  try {
    for (const name of ['package.json', 'package-lock.json']) copyFileSync(join(HERE, name), join(folder, name))
    const args = ['ci', '--no-audit', '--no-fund', '--ignore-scripts']
    const { status } = spawnSync('npm', args, { cwd: folder, stdio: ['ignore', process.stderr, process.stderr] })
    if (status !== 0) throw new Error('npm ci in bench/ failed')
    move(join(folder, 'node_modules'))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function move(installed) {
  try {
    renameSync(installed, MODULES)
  } catch (error) {
    // Another process was faster.
    if (!existsSync(MODULES)) throw error
  }
}
