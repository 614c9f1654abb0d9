// Releases leases when a thread or the process emits `'exit'`, or lets native code release them
// after that. If a process or thread ends without that event, native code releases them.

import { isMainThread } from 'node:worker_threads'
import { bridge } from '../native/records'
import { now } from '../util/clock'
import { singleton } from '../util/singleton'

/**
 * How long all copies together may delay the exit, in ms. If this is larger, a store that can't be
 * reached delays each exit for longer. If it is smaller, more leases are left to their ttl.
 */
const PATIENCE = 500

type Ending = (patience: number) => void

/**
 * The state that all copies share. It has no method, because a method would keep its copy
 * in memory. The copy that added the listener stays while any copy has an open client.
 */
interface SharedState {
  readonly endings: Set<Ending>
  /** The listener to `'exit'`, which exists while there are endings. */
  listener: (() => void) | undefined
}

/**
 * Registers this copy's leases for release at the end of its thread. Call it each time the bridge
 * opens. Returns a function that undoes this.
 *
 * After an uncaught exception or `process.exit()`, work in Node's thread pool may still run when
 * the `'exit'` event comes: for example, a file is still being written. Node waits for that work.
 * So where possible, native code renews the leases until the work has ended, and then releases
 * them.
 */
export function releaseOnExit(): () => void {
  const isLater = isNode() && (!isMainThread || bridge.releaseAtEnd())
  const ending: Ending = isLater ? () => bridge.excuse() : (patience) => bridge.releaseAll(patience)
  // All copies share one listener. Test runners load a package again and again, and with a listener
  // for each copy, Node would warn of a leak.
  const shared = sharedState()
  shared.endings.add(ending)
  return () => {
    shared.endings.delete(ending)
    if (shared.endings.size > 0 || shared.listener === undefined) return
    process.off('exit', shared.listener)
    shared.listener = undefined
  }
}

const sharedState = () => singleton('exit', (): SharedState => ({ endings: new Set(), listener: undefined }))

/** Listens to `'exit'`, also if other code has removed all listeners since the last call. */
export function listenToExit(): void {
  const shared = sharedState()
  shared.listener ??= () => endAll(shared.endings)
  if (!process.listeners('exit').includes(shared.listener)) process.on('exit', shared.listener)
}

/** Returns false for Bun, Deno and Electron, which end in other ways. */
function isNode(): boolean {
  return !['bun', 'deno', 'electron'].some((name) => name in process.versions)
}

function endAll(endings: Iterable<Ending>): void {
  const end = now() + PATIENCE
  for (const ending of endings) ending(Math.max(0, end - now()))
}
