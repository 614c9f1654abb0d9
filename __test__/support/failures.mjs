// What run.mjs repeats below its summary: each test that failed, and why. The output of all tests
// is long, and CI shows only its end.

/** The most lines of an error's message that are repeated. */
const MOST_LINES = 6

/** A reporter for `node --test`: prints only the tests that failed. */
export default async function* failures(events) {
  for await (const { type, data } of events) {
    // A suite fails only because a test in it has failed.
    if (type !== 'test:fail' || data.details.error?.failureType === 'subtestsFailed') continue
    const error = data.details.error?.cause ?? data.details.error
    const message = String(error?.message ?? error)
    yield `${data.name}${data.file ? ` (${data.file})` : ''}\n${indented(message)}\n`
  }
}

/** Returns the places and the messages of the panics in the output of `cargo test`. */
export function panicsIn(output) {
  const panics = output.matchAll(/^thread '.*' (?:\(\d+\) )?panicked at .*\n(?:(?!stack backtrace|note:).*\n?){0,6}/gm)
  return [...panics].map(([panic]) => `${indented(panic.trimEnd())}\n`).join('')
}

function indented(text) {
  return text
    .split('\n')
    .slice(0, MOST_LINES)
    .map((line) => `  ${line}`)
    .join('\n')
}
