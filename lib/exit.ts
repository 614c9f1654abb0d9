// Releases leases when JavaScript ends the process or a thread. Native code releases them at all
// other ends.

import { shared } from './copies'
import { bridge } from './native'

// Read it at load time: with a fake clock that stands still, the exit could take longer than
// PATIENCE.
const now = performance.now.bind(performance)

/**
 * How long all copies together may delay the exit, in ms. If this is larger, a store that can't be
 * reached delays each exit for longer. If it is smaller, more leases are left to their ttl.
 */
const PATIENCE = 500

type Release = (patience: number) => void

/**
 * Registers the release of this copy's leases for the exit of its thread. Call it once for each
 * bridge. The listener also runs after an uncaught exception and after process.exit(). All copies
 * share one listener: test runners load a package again and again, and Node would soon warn of a
 * listener leak.
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
