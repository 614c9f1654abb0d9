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

type Ending = (patience: number) => void

/**
 * Registers the release of this copy's leases for the end of its thread. Call it once for each
 * bridge. After an uncaught exception and `process.exit()`, work in Node's thread pool may still
 * run when the `'exit'` event comes: a file that is being written, for instance. Node waits for
 * that work. So where possible, native code releases the leases after it, and renews them until
 * then.
 */
export function releaseOnExit(): void {
  const isLater = isNode() && (!isMainThread || bridge.releaseAtEnd())
  // All copies share one listener: test runners load a package again and again, and Node would soon
  // warn of a listener leak.
  const endings = shared('exit', () => {
    const set = new Set<Ending>()
    process.on('exit', () => endAll(set))
    return set
  })
  endings.add(isLater ? () => bridge.excuse() : (patience) => bridge.releaseAll(patience))
}

/** Returns false for Bun, Deno and Electron, which end in another way. */
function isNode(): boolean {
  return !['bun', 'deno', 'electron'].some((name) => name in process.versions)
}

function endAll(endings: Iterable<Ending>): void {
  const end = now() + PATIENCE
  for (const ending of endings) ending(Math.max(0, end - now()))
}
