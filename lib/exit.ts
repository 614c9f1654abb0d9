// Releases leases when the process or a thread ends in JavaScript. Native code does the same for
// other ends.

import { isMainThread } from 'node:worker_threads'
import { now } from './clock'
import { shared } from './copies'
import { bridge } from './native'

/**
 * How long all copies together may delay the exit, in ms. If this is larger, a store that can't be
 * reached delays each exit for longer. If it is smaller, more leases are left to their ttl.
 */
const PATIENCE = 500

type Release = (patience: number) => void

/**
 * Registers the release of this copy's leases for the end of its thread. Call it once for each
 * bridge. After an uncaught exception and `process.exit()`, work in Node's thread pool may still
 * run when the `'exit'` event comes: a file that is being written, for instance. Node waits for
 * that work. So where possible, native code releases the leases after it.
 */
export function releaseOnExit(): void {
  if (isNode() && (!isMainThread || bridge.releaseAtEnd())) return
  // All copies share one listener: test runners load a package again and again, and Node would soon
  // warn of a listener leak.
  const releases = shared('exit', () => {
    const set = new Set<Release>()
    process.on('exit', () => releaseAll(set))
    return set
  })
  releases.add((patience) => bridge.releaseAll(patience))
}

/** Returns false for Bun, Deno and Electron, which end in another way. */
function isNode(): boolean {
  return !['bun', 'deno', 'electron'].some((name) => name in process.versions)
}

function releaseAll(releases: Iterable<Release>): void {
  const end = now() + PATIENCE
  for (const release of releases) release(Math.max(0, end - now()))
}
