// What happens when the process, or this thread of it, ends in order: leases are released. Native
// code does the same for other ends.

import { shared } from './copies'
import { bridge } from './native'

// Taken when this is loaded: with a fake clock that stands still, the exit could take longer.
const now = performance.now.bind(performance)

/** How long all copies together may delay the exit, in ms. Other leases end by their ttl. */
const PATIENCE = 500

type Release = (patience: number) => void

/**
 * Releases the leases of this copy when its thread exits. Call it once for each bridge. The listener
 * also runs after an uncaught exception and after process.exit(). All copies share it: test runners
 * load a package again and again, and Node would soon warn of a leak of listeners.
 */
export function releaseOnExit(): void {
  const releases = shared('exit', () => {
    const set = new Set<Release>()
    process.on('exit', () => releaseAll(set))
    return set
  })
  releases.add((patience) => bridge.releaseAll(patience))
}

function releaseAll(releases: Iterable<Release>): void {
  const end = now() + PATIENCE
  for (const release of releases) release(Math.max(0, end - now()))
}
