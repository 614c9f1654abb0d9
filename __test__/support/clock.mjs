// One clock for every process of a test: milliseconds on the host's monotonic clock.

export const now =
  process.versions.bun || process.versions.deno
    ? // Their hrtime begins with the process.
      () => performance.timeOrigin + performance.now()
    : () => Number(process.hrtime.bigint()) / 1e6

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * Asks `check` every few ms until it says yes; fails after `timeout` ms. For what has no event to await, such as a
 * key's expiry at a server. Returns what `check` returned.
 */
export async function until(what, check, timeout = 20_000, every = 5) {
  const end = now() + timeout
  for (;;) {
    const answer = await check()
    if (answer) return answer
    if (now() > end) throw new Error(`${what}: not within ${timeout} ms`)
    await sleep(every)
  }
}

/** Rejects if `promise` hasn't settled after `timeout` ms, so that a hang becomes a failure with a name. */
export function within(what, promise, timeout = 30_000) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${timeout} ms`)), timeout)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** How long `action` takes, and what it came to: { ms, value } or { ms, error }. */
export async function timed(action) {
  const start = now()
  try {
    const value = await action()
    return { ms: now() - start, value }
  } catch (error) {
    return { ms: now() - start, error }
  }
}
