// Uses the library for a long time and measures whether anything grows.

import { randomUUID } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { createLockClient, LockError } from 'leasehold'

/**
 * Returns memory in MB, open files, threads and handles of this process, after a garbage collection
 * if the runtime allows one.
 */
export function measure() {
  globalThis.gc?.()
  const { rss, heapUsed, external } = process.memoryUsage()
  const mb = (bytes) => Math.round((bytes / 1_048_576) * 10) / 10
  const linux = process.platform === 'linux'
  return {
    rss: mb(rss),
    heap: mb(heapUsed),
    external: mb(external),
    files: linux ? readdirSync('/proc/self/fd').length : 0,
    threads: linux ? Number(/Threads:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) : 0,
    handles: process.getActiveResourcesInfo().length,
  }
}

/** Runs `pairs` of acquire and release, 256 at a time, each with a key of its own. */
export async function usePairs(locks, pairs) {
  let left = pairs
  const lane = async () => {
    while (left-- > 0) {
      const lease = await locks.acquire(`soak-${left}`)
      await lease.release()
    }
  }
  await Promise.all(Array.from({ length: Math.min(256, pairs) }, lane))
}

/**
 * Acquires and releases `leases` leases, 256 at a time, each of a key of its own out of `keys`,
 * while the store may fail: { granted, failed }. A failed acquire does not count and is followed by
 * another.
 */
export async function useThroughFaults(locks, leases, keys) {
  let next = 0
  let granted = 0
  let failed = 0
  const lane = async () => {
    while (granted < leases) {
      try {
        const lease = await locks.acquire(`soak-${next++ % keys}`)
        granted++
        await lease.release()
      } catch (error) {
        if (!(error instanceof LockError)) throw error
        failed++
      }
    }
  }
  await Promise.all(Array.from({ length: 256 }, lane))
  return { granted, failed }
}

/**
 * Opens a client, uses all its functions, and closes it while it holds and waits; `cycles` times.
 */
export async function useClients(store, cycles) {
  for (let i = 0; i < cycles; i++) {
    const locks = createLockClient(store)
    await locks.ready()
    const key = randomUUID()
    await locks.withLock(key, (lease) => lease.renew())
    await locks.acquire(key)
    await locks.inspect(key)
    const waiting = locks.acquire(key, { wait: Infinity }).catch(() => {})
    const controller = new AbortController()
    const aborted = locks.acquire(key, { signal: controller.signal }).catch(() => {})
    controller.abort()
    await locks.close()
    await Promise.all([waiting, aborted])
  }
}
