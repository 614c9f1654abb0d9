// Runs a property on the samples in tests/corpus/, and on arbitrary input. See src/fuzzing.rs.

import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'

const CORPUS = fileURLToPath(new URL('../../tests/corpus', import.meta.url))

/** Returns the samples of a target: [name, text]. */
export function samplesOf(target) {
  const names = readdirSync(join(CORPUS, target)).sort()
  return names.map((name) => [name, readFileSync(join(CORPUS, target, name), 'utf8')])
}

/**
 * Runs an async property on each sample of a target, and on `cases` texts of an arbitrary, or
 * LEASEHOLD_FUZZ_CASES. Keeps the smallest text for which the property fails as a new sample.
 */
export async function fuzz(target, cases, texts, property) {
  for (const [name, text] of samplesOf(target)) {
    await property(text).catch((error) => {
      throw new Error(`${target}/${name}: ${error.message}`, { cause: error })
    })
  }
  const numRuns = Number(process.env.LEASEHOLD_FUZZ_CASES ?? cases)
  const { failed, counterexample, errorInstance } = await fc.check(fc.asyncProperty(texts, property), { numRuns })
  if (!failed) return
  const [text] = counterexample
  const name = `found-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
  writeFileSync(join(CORPUS, target, name), text)
  const shown = JSON.stringify(text)
  throw new Error(`${target}: ${errorInstance?.message}\ninput: ${shown}, kept in tests/corpus/${target}/${name}`, {
    cause: errorInstance,
  })
}

const edit = fc.record({
  at: fc.nat(),
  removed: fc.nat({ max: 9 }),
  inserted: fc.oneof(
    fc.string({ maxLength: 4 }),
    fc.string({ unit: 'binary', maxLength: 3 }),
    fc.constantFrom('"', '{', '}', ',', ':', '0', '-', '1e9', 'null', '\\ud800', '\\u0000', '=', 'A', '_'),
  ),
})

/** Generates up to five edits of a text. */
export const edits = fc.array(edit, { maxLength: 5 })

/** Returns a text with some of {@link edits} made. */
export function withEdits(text, edits) {
  return edits.reduce((text, { at, removed, inserted }) => {
    const place = at % (text.length + 1)
    return text.slice(0, place) + inserted + text.slice(place + removed)
  }, text)
}
