// Repeats each test that failed, with its error, below the summary of run.mjs. The output of all
// tests is long, and CI shows only its end.

/** How many lines of an error's message are repeated at most. */
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

/** Returns the errors in the output of Rust's compiler, with their places. */
export function errorsIn(output) {
  const errors = output.matchAll(/^error(?:\[E\d+\])?: .*\n(?: .*\n?){0,5}/gm)
  return [...errors].map(([error]) => `${indented(error.trimEnd())}\n`).join('')
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
