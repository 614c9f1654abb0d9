import { inspect, types } from 'node:util'

/** What was thrown, as listeners may expect it: what is no error is the cause of one. */
export function asError(thrown: unknown): Error {
  // Those of other realms are errors, too.
  if (thrown instanceof Error || types.isNativeError(thrown)) return thrown
  const what = inspect(thrown, {
    depth: 0,
    breakLength: Number.POSITIVE_INFINITY,
    maxStringLength: 100,
    customInspect: false,
  })
  return new Error(`what was thrown is not an Error, but ${what}`, { cause: thrown })
}
