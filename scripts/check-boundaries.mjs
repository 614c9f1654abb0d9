// Checks what keeps the rooms of src/ apart (see src/lib.rs), and tells which files have grown too long.

import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const MAX_LINES = 500

const filesBelow = (folder, ends) =>
  readdirSync(join(ROOT, folder), { recursive: true })
    .filter((name) => ends.some((end) => name.endsWith(end)))
    .map((name) => join(folder, name).split(sep).join('/'))

/** Returns the lines of a file as [number, text]. */
const linesOf = (path) =>
  readFileSync(join(ROOT, path), 'utf8')
    .split('\n')
    .map((line, i) => [i + 1, line])

/** Returns the lines of Rust without their comments, as [number, text]. */
const codeOf = (path) => linesOf(path).map(([number, line]) => [number, line.replace(/\/\/.*$/, '')])

const RULES = [
  {
    what: 'only src/binding/ says napi',
    applies: (path) => !path.startsWith('src/binding/') && path !== 'src/binding.rs',
    forbidden: /\bnapi(_derive)?\b/,
  },
  {
    what: 'only src/store/redis/ says redis::, not even in a comment',
    applies: (path) => !path.startsWith('src/store/redis/'),
    // Our own module has the name of the crate, so others import it as `redis_store`.
    forbidden: /\bredis::/,
    lines: linesOf,
  },
  {
    what: 'src/lease/ and src/worker.rs do no I/O and read no clock',
    applies: (path) => path.startsWith('src/lease/') || path === 'src/worker.rs',
    forbidden:
      /Instant::now|SystemTime|\bstd::(fs|net|io|thread|process)\b|\btokio\b|engine::clock|\brustix\b|\brusqlite\b/,
  },
]

const sources = filesBelow('src', ['.rs'])
const faults = []
for (const path of sources) {
  for (const { what, applies, forbidden, lines = codeOf } of RULES) {
    if (!applies(path)) continue
    for (const [number, line] of lines(path)) {
      if (forbidden.test(line)) faults.push(`${path}:${number}: ${what}: ${line.trim()}`)
    }
  }
}
for (const path of [...sources, ...filesBelow('lib', ['.ts']), ...filesBelow('__test__', ['.mjs', '.ts'])]) {
  const lines = readFileSync(join(ROOT, path), 'utf8').split('\n').length - 1
  if (lines > MAX_LINES)
    console.warn(`note: ${path} has ${lines} lines; a file of more than ${MAX_LINES} wants to be two`)
}

if (faults.length) {
  console.error(faults.join('\n'))
  process.exitCode = 1
} else {
  console.log(`boundaries: ${RULES.length} rules hold in ${sources.length} Rust files`)
}
