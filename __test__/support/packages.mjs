// Makes copies of the built package, like two installed versions or a bundler in one process.

import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/**
 * Copies the built package to `folder` under the number `version`. Returns the path of its entry.
 */
export function copyPackage(folder, version) {
  mkdirSync(folder, { recursive: true })
  cpSync(join(ROOT, 'dist'), join(folder, 'dist'), { recursive: true })
  for (const name of readdirSync(ROOT)) {
    if (name === 'native.cjs' || name.endsWith('.node')) copyFileSync(join(ROOT, name), join(folder, name))
  }
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ ...manifest, version }))
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'))
  return join(folder, 'dist', 'index.js')
}
