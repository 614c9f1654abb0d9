// The units of durations. An editor shows the unit of every option, property and parameter that is
// a duration.
//
// TypeScript shows an alias of `number` as `number`, but the alias of a union by its name. So a unit
// is a union of `number` and an enum without members. `number & {}` would keep its name, too. But it
// counts as an object: `DeepReadonly<LockStats>` and types like it would turn each duration into an
// object that has the methods of a number.

/** @hidden */
declare enum MillisecondsUnit {}

/** @hidden */
declare enum SecondsUnit {}

/**
 * Measures a duration in milliseconds. Any `number` can be assigned to it, and it can be assigned to
 * any `number`. `MillisecondsUnit` has no values: it makes editors show the unit.
 *
 * @example
 * const limit: Milliseconds = 5_000
 * const lease = await locks.acquire('report', { maxHold: limit })
 * const half: number = lease.remaining / 2
 */
export type Milliseconds = number | MillisecondsUnit

/**
 * Measures a duration in seconds. Any `number` can be assigned to it, and it can be assigned to any
 * `number`. `SecondsUnit` has no values: it makes editors show the unit.
 */
export type Seconds = number | SecondsUnit

// Only the types exist, so a program can't use the enums as values.
export type { MillisecondsUnit, SecondsUnit }
