// The units of durations, which editors show.
//
// TypeScript shows an alias of `number` as `number`, but the alias of a union by its name. So a
// unit is a union of `number` and an enum without members. `number & {}` has a name, too, but
// counts as an object: `DeepReadonly<LockStats>` and types like it would turn its durations into
// objects.

/** @hidden */
declare enum MillisecondsUnit {}

/** @hidden */
declare enum SecondsUnit {}

/**
 * Measures a duration in milliseconds. Any `number` can be assigned to it, and it to any `number`.
 * `MillisecondsUnit` has no values: it makes editors show the unit.
 *
 * @example
 * const limit: Milliseconds = 5_000
 * const lease = await locks.acquire('report', { maxHold: limit })
 * const half: number = lease.remaining / 2
 */
export type Milliseconds = number | MillisecondsUnit

/**
 * Measures a duration in seconds. Any `number` can be assigned to it, and it to any `number`.
 * `SecondsUnit` has no values: it makes editors show the unit.
 */
export type Seconds = number | SecondsUnit

// Only the types exist, so a program can't use the enums as values.
export type { MillisecondsUnit, SecondsUnit }
