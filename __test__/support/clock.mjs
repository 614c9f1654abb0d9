// A clock that all processes of a test share: milliseconds on the host's monotonic clock.

export const now =
  process.versions.bun || process.versions.deno
    ? // The hrtime of these runtimes begins with the process.
      () => performance.timeOrigin + performance.now()
    : () => Number(process.hrtime.bigint()) / 1e6

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/**
 * Calls `check` every few ms until it returns a true value, which `until` returns. Rejects after
 * `timeout` ms. For conditions without an event, such as a key's expiry at a server.
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

/**
 * Rejects if `promise` hasn't settled after `timeout` ms, so that a hang becomes a failure with a
 * name.
 */
export function within(what, promise, timeout = 30_000) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${timeout} ms`)), timeout)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

/** Returns how long `action` takes, and its result: { ms, value } or { ms, error }. */
export async function timed(action) {
  const start = now()
  try {
    const value = await action()
    return { ms: now() - start, value }
  } catch (error) {
    return { ms: now() - start, error }
  }
}
