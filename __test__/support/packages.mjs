// Copies of the built package, as two installed versions or a bundler put them into one process.

import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Copies the built package to `folder` as if it were `version`. Returns the path of its entry. */
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
