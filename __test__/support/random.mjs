// Random numbers that can be repeated.

/**
 * Returns a generator of numbers in [0, 1). Prints its seed, which is LEASEHOLD_TEST_SEED if that
 * is set.
 */
export function randomFrom(t) {
  const seed = Number(process.env.LEASEHOLD_TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  t.diagnostic(`seed: LEASEHOLD_TEST_SEED=${seed}`)
  let state = seed >>> 0
  // Mulberry32.
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
