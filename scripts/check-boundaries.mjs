// Checks what keeps the folders of src/ and lib/ apart (see src/lib.rs and lib/index.ts): what each
// may use, that no files import each other in a circle, and that no file grows too long. Tests,
// too, must not grow too long. boundaries.json lists the files that may still do so.

import { readdirSync, readFileSync } from 'node:fs'
import { join, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
import { circlesOf, roomGraph, rustGraph, typescriptGraph } from './module-graph.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** A file of more lines is a fault. */
const MAX_LINES = 400
/** A file of more lines is worth a note. */
const MANY_LINES = 300
/** The files that may be in a circle, or too long, until they are mended. */
const ALLOWED = JSON.parse(readFileSync(new URL('boundaries.json', import.meta.url), 'utf8'))

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
    applies: (path) => !path.startsWith('src/binding/'),
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
    what: 'only src/store/sqlite/ says rusqlite',
    applies: (path) => !path.startsWith('src/store/sqlite/'),
    forbidden: /\brusqlite\b/,
  },
  {
    what: 'src/lease/ and src/worker.rs do no I/O and read no clock',
    applies: (path) => path.startsWith('src/lease/') || path === 'src/worker.rs',
    forbidden: /Instant::now|SystemTime|\bstd::(fs|net|io|thread|process)\b|\btokio\b|engine::clock|\brustix\b/,
  },
  {
    // rustc_hash has no random seed, so a user who chooses keys can make all of them collide.
    what: 'maps use rustc_hash only if their keys are numbers that this process has given',
    applies: () => true,
    forbidden:
      /\bFxHash(Map|Set)<(?!(u32|u64|usize|OpId|ClientId|EnvId|StoreId)\b|\(usize, u64\))|\blet\b.*\bFxHash(Map|Set)::/,
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

/** Returns the texts of files by their paths. */
const textsOf = (paths) => new Map(paths.map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]))

const typescript = filesBelow('lib', ['.ts'])
const libGraph = typescriptGraph(textsOf(typescript))
for (const circle of circlesOf(libGraph)) faults.push(`these files import each other in a circle: ${circle.join(', ')}`)
for (const circle of circlesOf(roomGraph(libGraph, 'lib'))) {
  faults.push(`these folders of lib/ import each other in a circle: ${circle.join(', ')}`)
}

const rustCircles = circlesOf(rustGraph(textsOf(sources), 'src/lib.rs'))
for (const circle of rustCircles) {
  const added = circle.filter((path) => !ALLOWED.circles.includes(path))
  if (added.length)
    faults.push(`${added.join(', ')}: new in a circle of files that use each other: ${circle.join(', ')}`)
}

const long = []
const tests = [...filesBelow('tests', ['.rs']), ...filesBelow('__test__', ['.mjs', '.ts'])]
for (const path of [...sources, ...typescript, ...tests]) {
  const lines = linesOf(path).length - 1
  if (lines > MAX_LINES) long.push(path)
  if (lines > MAX_LINES && !ALLOWED.long.includes(path)) {
    faults.push(`${path} has ${lines} lines, and at most ${MAX_LINES} are allowed: make two files of it`)
  } else if (lines > MANY_LINES) {
    console.warn(`note: ${path} has ${lines} lines; a file of more than ${MANY_LINES} should be two`)
  }
}

// If a change mends one of these, it removes the entry, so that the fault can't come back.
const circular = new Set(rustCircles.flat())
for (const path of ALLOWED.circles.filter((path) => !circular.has(path))) {
  faults.push(`${path} is in no circle any more: remove it from "circles" in scripts/boundaries.json`)
}
for (const path of ALLOWED.long.filter((path) => !long.includes(path))) {
  faults.push(`${path} has at most ${MAX_LINES} lines now: remove it from "long" in scripts/boundaries.json`)
}

if (faults.length) {
  console.error(faults.join('\n'))
  process.exitCode = 1
} else {
  console.log(
    `boundaries: ${RULES.length} rules hold in ${sources.length} Rust files, and no circle is new in these and in ` +
      `${typescript.length} TypeScript files`,
  )
}
