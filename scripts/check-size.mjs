// Checks the size of an addon: every user installs it, so it must stay below 6 MB.
//
//   node scripts/check-size.mjs FILE    fails unless it is smaller

import { statSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const MOST_BYTES = 6_000_000

/** What is wrong with the size of the addon at `path`, if anything is. */
export function tooLarge(path) {
  const { size } = statSync(path)
  return size < MOST_BYTES ? undefined : `${path} has ${size} bytes, and must have less than ${MOST_BYTES}`
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [path] = process.argv.slice(2)
  const problem = path === undefined ? 'usage: node scripts/check-size.mjs FILE' : tooLarge(path)
  if (problem !== undefined) {
    console.error(problem)
    process.exitCode = 1
  }
}
